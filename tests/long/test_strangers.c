/*
 * test_strangers.c - thousands of strangers of each kind at each kind of port: where ranks connect
 * (host->connect: rings, parameter servers), and where launchers do. Those of the job come through,
 * every stranger is turned away, and no descriptor is left.
 *
 * DPB_STRANGERS=N: so many of each kind instead of 3,000.
 */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <sys/socket.h>

#include "tests/unit/trial.h"

#include "launch/channel.h"
#include "lib/faults.h"
#include "lib/siege.h"
#include "plan/experiment.h" /* dpb_host */
#include "world/handshake.h"

enum { PORT = 23571, N_STREAMS = 2 };

static unsigned strangers_wanted(void)
{
    return faults_number_of("DPB_STRANGERS", 3000);
}

static void expect_refused(enum siege_kind kind, unsigned n_refused)
{
    print_message("%u strangers, %s\n", n_refused, siege_names[kind]);
    if (n_refused != strangers_wanted())
        fail_msg("%s: %u of %u strangers were turned away", siege_names[kind], n_refused,
                 strangers_wanted());
}

/* ---- where ranks connect ------------------------------------------------------------------- */

enum { OVER, REFUSED }; /* of scratch->numbers */
static const struct trial_scratch *besieged;

/* Rank 1 learns where rank 0 is when the strangers have been there. */
static dpb_status get_late(const char *key, void *value, size_t *bytes, int64_t timeout_ns)
{
    while (strstr(key, ".address") &&
           __atomic_load_n(&besieged->numbers[OVER], __ATOMIC_ACQUIRE) == 0)
        trial_sleep_ms(5);
    return dpb_store.get(key, value, bytes, timeout_ns);
}

static dpb_status connect_ranks(struct dpb_connect_peer *peer)
{
    const bool dials = dpb_world.rank == 1;
    struct dpb_store_ops store = dpb_store;
    const struct sockaddr_in address = {.sin_family = AF_INET,
                                        .sin_port = htons(dials ? 0 : PORT),
                                        .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    const struct dpb_connect_args args = {.name = "siege",
                                          .what = "the test",
                                          .shape = "one",
                                          .interface = "lo",
                                          .address = (const struct sockaddr *)&address,
                                          .address_bytes = sizeof address,
                                          .rank = dpb_world.rank,
                                          .n_streams = N_STREAMS,
                                          .peers = peer,
                                          .n_peers = 1,
                                          .store = &store};
    *peer = (struct dpb_connect_peer){.rank = dials ? 0 : 1, .dialled = dials};
    if (dials)
        store.get = get_late;
    return dpb_host.connect(&args);
}

/* What one end sends comes to the other. */
static dpb_status talk(const struct dpb_connect_peer *peer)
{
    for (int s = 0; s < N_STREAMS; s++) {
        struct pollfd readable = {.fd = peer->fds[s], .events = POLLIN};
        char byte = (char)(10 * dpb_world.rank + (unsigned)s);
        RANK_CHECK(send(peer->fds[s], &byte, 1, MSG_NOSIGNAL) == 1);
        RANK_CHECK(poll(&readable, 1, 20000) == 1 && recv(peer->fds[s], &byte, 1, 0) == 1);
        RANK_CHECK(byte == (char)(10 * peer->rank + (unsigned)s));
    }
    DPB_TRY(dpb_store_barrier("talked", 0));
    for (int s = 0; s < N_STREAMS; s++)
        close(peer->fds[s]);
    return DPB_OK;
}

static void *annoy(void *scratch_)
{
    struct trial_scratch *scratch = scratch_;
    struct siege siege = {.kind = (enum siege_kind)atoi(getenv("DPB_KIND")),
                          .port = PORT,
                          .n = strangers_wanted(),
                          .greeting = {.magic = DPB_GREETING_MAGIC, .dialler = 1}};
    siege_lay(&siege);
    scratch->numbers[REFUSED] = siege.n_refused;
    __atomic_store_n(&scratch->numbers[OVER], 1, __ATOMIC_RELEASE);
    return NULL;
}

static dpb_status siege_of_ranks(struct trial_scratch *scratch)
{
    struct dpb_connect_peer peer;
    pthread_t thread;
    const int n_fds = trial_count_entries("/proc/self/fd", "");
    besieged = scratch;
    if (dpb_world.rank == 0)
        RANK_CHECK(pthread_create(&thread, NULL, annoy, scratch) == 0);
    DPB_TRY(connect_ranks(&peer));
    if (dpb_world.rank == 0)
        pthread_join(thread, NULL);
    DPB_TRY(talk(&peer));
    RANK_CHECK(trial_count_entries("/proc/self/fd", "") == n_fds);
    return DPB_OK;
}

static const struct trial_case cases[] = {{"siege", siege_of_ranks}, {NULL, NULL}};

TEST(test_ranks)
{
    for (int kind = 0; kind < SIEGE_KINDS; kind++) {
        char number[8];
        snprintf(number, sizeof number, "%d", kind);
        setenv("DPB_KIND", number, 1);
        struct trial trial = {.name = "siege", .n_workers = 2, .timeout_s = 50};
        trial_run(&trial);
        if (trial.at->status != DPB_OK || trial.at->exit_code != 0)
            fail_msg("%s: %s\n%s", siege_names[kind], trial.at->cause, trial.errors);
        expect_refused((enum siege_kind)kind, (unsigned)trial.at->numbers[REFUSED]);
    }
}

/* ---- where launchers connect --------------------------------------------------------------- */

struct caller {
    char address[DPB_ADDRESS_BYTES], why[DPB_CHANNEL_WHY_BYTES];
    dpb_status status;
    int fd;
};

static void *call(void *argument)
{
    struct caller *caller = argument;
    const struct dpb_deadline deadline = dpb_deadline_in(INT64_C(20000000000));
    caller->status = dpb_channel_connect(caller->address, true, 3, DPB_CHANNEL_STORE, deadline,
                                         &caller->fd, caller->why);
    return NULL;
}

static int serve(struct dpb_door *door)
{
    struct pollfd fds[DPB_STRANGERS + 8];
    struct dpb_meeting came;
    poll(fds, dpb_door_watch(door, fds), 20);
    assert_int_equal(dpb_door_serve(door, fds, &came), DPB_OK);
    return came.fd;
}

/* The strangers first, then a part. */
static void besiege(struct dpb_door *door, struct siege *siege, struct caller *caller)
{
    pthread_t strangers, part;
    int fd = -1;
    assert_int_equal(pthread_create(&strangers, NULL, siege_lay, siege), 0);
    while (!__atomic_load_n(&siege->over, __ATOMIC_ACQUIRE))
        assert_int_equal(serve(door), -1);
    pthread_join(strangers, NULL);
    assert_int_equal(pthread_create(&part, NULL, call, caller), 0);
    const double until_s = now_s() + 60;
    while (fd < 0 && now_s() < until_s)
        fd = serve(door);
    pthread_join(part, NULL);
    assert_true(fd >= 0);
    assert_int_equal(caller->status, DPB_OK);
    close(fd);
    close(caller->fd);
}

TEST(test_launchers)
{
    struct caller caller;
    struct dpb_circle circle;
    int listener, n_fds = trial_count_entries("/proc/self/fd", "");
    unsigned port;
    dpb_log_set_hooks(&(struct dpb_log_hooks){.silent = true});
    assert_int_equal(dpb_channel_listen(&listener, &circle, caller.address), DPB_OK);
    assert_int_equal(sscanf(caller.address + 2 * DPB_SECRET_BYTES, " %u", &port), 1);
    for (int kind = 0; kind < SIEGE_KINDS; kind++) {
        struct dpb_door door = {.listener = listener, .circle = &circle};
        struct siege siege = {.kind = (enum siege_kind)kind,
                              .port = (uint16_t)port,
                              .n = strangers_wanted(),
                              .greeting = {.magic = DPB_GREETING_MAGIC, .dialler = 3}};
        assert_int_equal(dpb_door_open(&door, 1), DPB_OK);
        besiege(&door, &siege, &caller);
        dpb_door_close(&door);
        expect_refused(siege.kind, siege.n_refused);
    }
    close(listener);
    assert_int_equal(trial_count_entries("/proc/self/fd", ""), n_fds);
}

TRIAL_MAIN(cases)
