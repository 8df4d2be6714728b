/*
 * test_ring_tcp.c - a ring over TCP: jobs whose ranks connect and reduce, strangers
 * that knock at their ports, peers that send credits or early messages that they should not, close,
 * or say nothing. Other wrong messages: test_ring.c, and as bytes test_mesh.c.
 */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <sys/socket.h>

#include "tests/unit/wakes.h"

#include "lib/mesh/mesh_tcp.h"
#include "lib/ring/ring.h"
#include "lib/tcp/tcp_frames.h"
#include "plan/experiment.h"
#include "world/handshake.h"
#include "world/store.h"

enum { N = 100000, BUCKET = 30000, SLOTS = 8, SLOT_BYTES = 4096, PORT = 23171 };

static float arena[N];
static char inbox[SLOTS * SLOT_BYTES] __attribute__((aligned(64)));

/* ---- a ring of all ranks of a job ---------------------------------------------------------- */

static struct dpb_tcp_options options = {.streams = 3, .interface = "127.0.0.1"};
static const struct dpb_host *host = &dpb_host;

static dpb_status open_ring(const char *name, struct dpb_sums **ring)
{
    static uint32_t members[TRIAL_RANKS];
    struct dpb_mesh_transport *transport;
    for (uint32_t rank = 0; rank < dpb_world.n_ranks; rank++)
        members[rank] = rank;
    DPB_TRY(dpb_mesh_tcp_create(host, &options, &transport));
    const struct dpb_ring_args args = {.host = host,
                                       .transport = transport,
                                       .members = {.name = name,
                                                   .members = members,
                                                   .n_members = dpb_world.n_ranks,
                                                   .position = dpb_world.rank},
                                       .memory = {.arena = arena,
                                                  .arena_bytes = sizeof arena,
                                                  .inbox = inbox,
                                                  .n_slots = SLOTS,
                                                  .slot_bytes = SLOT_BYTES},
                                       .type = DPB_FP32,
                                       .n_buckets = (N + BUCKET - 1) / BUCKET,
                                       .bucket_elements = BUCKET};
    return dpb_ring_create(&args, ring);
}

/* Integers, so that the sum does not depend on its order. */
static dpb_status reduce(struct dpb_sums *ring, uint64_t step)
{
    uint32_t n = dpb_world.n_ranks;
    uint64_t n_buckets = (N + BUCKET - 1) / BUCKET;
    for (uint64_t i = 0; i < N; i++)
        arena[i] = (float)((i * 7 + step + dpb_world.rank * 3) % 101);
    dpb_sums_begin(ring, step);
    for (uint64_t b = 0; b < n_buckets; b++)
        ring->ops->post(ring, b * BUCKET, b + 1 < n_buckets ? BUCKET : N - b * BUCKET);
    while (!dpb_sums_finished(ring, n_buckets - 1)) {
        bool moved;
        DPB_TRY(ring->ops->move(ring, INT64_MAX, &moved));
        if (!moved && !dpb_sums_finished(ring, n_buckets - 1))
            DPB_TRY(ring->ops->wait(ring));
    }
    for (uint64_t i = 0; i < N; i++) {
        float sum = 0.0f;
        for (uint32_t rank = 0; rank < n; rank++)
            sum += (float)((i * 7 + step + rank * 3) % 101);
        RANK_CHECK(arena[i] == sum);
    }
    return DPB_OK;
}

static int count_fds(void)
{
    return trial_count_entries("/proc/self/fd", "");
}

/* Twice in a row: each opening has a secret of its own, and leaves no descriptor behind. */
static dpb_status meets(struct trial_scratch *scratch)
{
    int before = count_fds();
    (void)scratch;
    for (int opening = 0; opening < 2; opening++) {
        struct dpb_sums *ring;
        DPB_TRY(open_ring(opening == 0 ? "first" : "second", &ring));
        /* To the next, from the one before, and one that watches these. */
        RANK_CHECK(count_fds() == before + 2 * options.streams + 1);
        for (uint64_t step = 0; step < 20; step++)
            DPB_TRY(reduce(ring, step));
        DPB_TRY(dpb_store_barrier(opening == 0 ? "over" : "all over", 0));
        dpb_sums_destroy(ring);
        RANK_CHECK(count_fds() == before);
    }
    return DPB_OK;
}

static dpb_status meets_by_one(struct trial_scratch *scratch)
{
    options.streams = 1;
    return meets(scratch);
}

static dpb_status meets_by_ip6(struct trial_scratch *scratch)
{
    options.interface = "::1";
    return meets(scratch);
}

static dpb_status meets_at_a_port(struct trial_scratch *scratch)
{
    options.port = PORT;
    return meets(scratch);
}

/* ---- strangers ----------------------------------------------------------------------------- */

static int knock(uint32_t rank)
{
    const struct sockaddr_in address = {.sin_family = AF_INET,
                                        .sin_port = htons((uint16_t)(PORT + rank)),
                                        .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    for (int i = 0; i < 500; i++, trial_sleep_ms(2)) {
        int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        if (connect(fd, (const struct sockaddr *)&address, sizeof address) == 0)
            return fd;
        close(fd);
    }
    return -1;
}

enum { TRIED = 2 /* of scratch->numbers: the strangers have tried all */ };

/* All that a stranger may try at rank 0, whose secret it does not know. */
static void *annoy(void *scratch_)
{
    struct trial_scratch *scratch = scratch_;
    char rubbish[500];
    struct dpb_greeting greeting = {.magic = DPB_GREETING_MAGIC, .dialler = 1, .acceptor = 0};
    struct dpb_answer answer;
    uint8_t proof[DPB_MAC_BYTES] = {1};
    memset(rubbish, 'x', sizeof rubbish);
    for (int i = 0; i < 30; i++)
        knock(0); /* and says nothing */
    (void)!write(knock(0), rubbish, sizeof rubbish);
    close(knock(0));
    (void)!write(knock(0), &greeting, 20); /* and stops in the middle */
    greeting.purpose = UINT32_MAX;
    (void)!write(knock(0), &greeting, sizeof greeting);
    greeting.purpose = 0;
    (void)!write(knock(0), &greeting, sizeof greeting); /* and does not prove it */
    int fd = knock(0);
    if (write(fd, &greeting, sizeof greeting) == sizeof greeting &&
        recv(fd, &answer, sizeof answer, MSG_WAITALL) == sizeof answer)
        (void)!write(fd, proof, sizeof proof);
    memcpy(proof, answer.code, sizeof proof); /* what the rank itself has said */
    fd = knock(0);
    if (write(fd, &greeting, sizeof greeting) == sizeof greeting &&
        recv(fd, &answer, sizeof answer, MSG_WAITALL) == sizeof answer)
        (void)!write(fd, proof, sizeof proof);
    __atomic_store_n(&scratch->numbers[TRIED], 1, __ATOMIC_RELEASE);
    return NULL;
}

/* Rank 1 learns where rank 0 is when the strangers have tried all. */
static struct trial_scratch *tried;
static int64_t told_ns;

static dpb_status get_late(const char *key, void *value, size_t *bytes, int64_t timeout_ns)
{
    while (strstr(key, ".address") &&
           __atomic_load_n(&tried->numbers[TRIED], __ATOMIC_ACQUIRE) == 0)
        trial_sleep_ms(5);
    told_ns = strstr(key, ".address") ? dpb_now_ns() : told_ns;
    return dpb_store.get(key, value, bytes, timeout_ns);
}

/* They are there before rank 1 is. */
static dpb_status strangers(struct trial_scratch *scratch)
{
    pthread_t thread;
    static struct dpb_store_ops store;
    static struct dpb_host patient;
    struct dpb_sums *ring;
    store = dpb_store;
    store.get = get_late;
    patient = dpb_host;
    patient.store = &store;
    tried = scratch;
    options.port = PORT;
    if (dpb_world.rank == 0)
        RANK_CHECK(pthread_create(&thread, NULL, annoy, scratch) == 0);
    else
        host = &patient;
    DPB_TRY(open_ring("ring", &ring));
    if (dpb_world.rank == 1)
        scratch->numbers[1] = (uint64_t)(dpb_now_ns() - told_ns);
    DPB_TRY(reduce(ring, 0));
    DPB_TRY(dpb_store_barrier("over", 0));
    dpb_sums_destroy(ring);
    if (dpb_world.rank == 0)
        pthread_join(thread, NULL);
    return DPB_OK;
}

/* ---- what ends a job ----------------------------------------------------------------------- */

static dpb_status get_another_secret(const char *key, void *value, size_t *bytes,
                                     int64_t timeout_ns)
{
    DPB_TRY(dpb_store.get(key, value, bytes, timeout_ns));
    if (strstr(key, ".secret"))
        ((uint8_t *)value)[7] ^= 1;
    return DPB_OK;
}

static dpb_status wrong_secret(struct trial_scratch *scratch)
{
    static struct dpb_store_ops store;
    static struct dpb_host liar;
    struct dpb_sums *ring;
    (void)scratch;
    store = dpb_store;
    store.get = get_another_secret;
    liar = dpb_host;
    liar.store = &store;
    host = &liar; /* rank 0 makes the secret, so rank 1 has another one */
    return open_ring("ring", &ring);
}

static dpb_status other_streams(struct trial_scratch *scratch)
{
    struct dpb_sums *ring;
    (void)scratch;
    options.streams = 1 + dpb_world.rank;
    return open_ring("ring", &ring);
}

static dpb_status port_taken(struct trial_scratch *scratch)
{
    struct dpb_sums *ring;
    const struct sockaddr_in address = {.sin_family = AF_INET,
                                        .sin_port = htons(PORT + 1),
                                        .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), on = 1;
    (void)scratch;
    if (dpb_world.rank == 0) {
        setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
        RANK_CHECK(bind(fd, (const struct sockaddr *)&address, sizeof address) == 0);
        RANK_CHECK(listen(fd, 1) == 0);
    }
    DPB_TRY(dpb_store_barrier("taken", 0));
    options.port = PORT;
    return open_ring("ring", &ring);
}

/* Rank 1 never comes; its address is told, so that rank 0 dials. */
static dpb_status absent(struct trial_scratch *scratch)
{
    struct dpb_sums *ring;
    const struct sockaddr_in nobody = {
        .sin_family = AF_INET, .sin_port = htons(1), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    (void)scratch;
    if (dpb_world.rank == 0)
        return open_ring("ring", &ring);
    const char shape[] =
        "comm.streams = 3, chunks of 4096 bytes, 8 of them in the inbox, 400000 bytes "
        "of gradients";
    DPB_TRY(dpb_store.put("ring.shape.1", shape, sizeof shape));
    DPB_TRY(dpb_store.put("ring.address.1", &nobody, sizeof nobody));
    trial_sleep_ms(20000);
    return DPB_OK;
}

static const struct trial_case cases[] = {
    {"meets", meets},
    {"meets_by_one", meets_by_one},
    {"meets_by_ip6", meets_by_ip6},
    {"meets_at_a_port", meets_at_a_port},
    {"strangers", strangers},
    {"wrong_secret", wrong_secret},
    {"other_streams", other_streams},
    {"port_taken", port_taken},
    {"absent", absent},
    {NULL, NULL},
};

/* ---- tests of jobs ------------------------------------------------------------------------- */

TEST(test_meets)
{
    for (uint32_t n = 2; n <= 5; n++)
        trial_passes("meets", n, 0);
    trial_passes("meets_by_one", 2, 0);
    trial_passes("meets_by_ip6", 3, 0);
    trial_passes("meets_at_a_port", 3, 0);
}

/* Rank 1 finds rank 0 besieged: the silent ones would take 3 s, in each try. */
TEST(test_strangers)
{
    static const char *const said[] = {"it said nothing", "no hello of a rank",
                                       "does not know the job's secret",
                                       "dropped a connection from 127.0.0.1:"};
    uint64_t cost_ns = UINT64_MAX;
    for (int tries = 0; tries < 5 && cost_ns > 1000000000; tries++) {
        struct trial trial = {.name = "strangers", .n_workers = 2, .timeout_s = 20};
        trial_run(&trial);
        if (trial.at->status != DPB_OK)
            fail_msg("%s\n%s", trial.at->cause, trial.errors);
        for (size_t i = 0; i < sizeof said / sizeof said[0]; i++)
            expect_part(trial.errors, said[i]);
        cost_ns = trial.at->numbers[1];
    }
    if (cost_ns > 1000000000)
        fail_msg("strangers cost %.1f s", (double)cost_ns * 1e-9);
}

struct end {
    const char *name, *words[4];
    dpb_status status;
};

static const struct end ends[] = {
    {"wrong_secret",
     {"the answer at 127.0.0.1:", "where rank ", "does not know the job's secret"},
     DPB_FAILED},
    {"other_streams", {"rank 0 has comm.streams = 1", "rank 1 has comm.streams = 2"}, DPB_USAGE},
    {"port_taken", {"rank 1", "cannot listen at 127.0.0.1:23172", "comm.port"}, DPB_IO},
    {"absent",
     {"the connections of the ring: to rank 1 at 127.0.0.1:1, Connection refused"},
     DPB_TIMEOUT},
};

TEST(test_ends)
{
    for (size_t i = 0; i < sizeof ends / sizeof ends[0]; i++) {
        struct trial trial = {.name = ends[i].name, .n_workers = 2, .timeout_s = 1};
        trial_run_within(&trial, 6);
        if (trial.at->status != ends[i].status)
            fail_msg("%s: status %d after %.1f s: %s\n%s", ends[i].name, trial.at->status,
                     trial.at->seconds, trial.at->cause, trial.errors);
        for (size_t word = 0; word < 4 && ends[i].words[word]; word++)
            if (!strstr(trial.at->cause, ends[i].words[word]))
                fail_msg("%s: no '%s' in: %s", ends[i].name, ends[i].words[word], trial.at->cause);
    }
}

/* ---- a peer that the test plays ------------------------------------------------------------ */

/* Rank 0 of two, at step 5 with one bucket of 16 KiB under way, two slices of 8 KiB. */
struct duel {
    struct dpb_sums *ring;
    int previous, next; /* the test's ends */
    struct dpb_doorbell *doorbell;
};

static void duel_begin_with(struct duel *duel, uint32_t n_slots, uint64_t slot_bytes)
{
    static const uint32_t members[] = {0, 1};
    struct dpb_mesh_transport *transport;
    int in[2], out[2];
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, in), 0);
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, out), 0);
    duel->doorbell = wakes_doorbell();
    duel->previous = in[1];
    duel->next = out[1];
    const int fds[] = {out[0], in[0]};
    assert_int_equal(dpb_mesh_tcp_create_connected(&dpb_host, 1, fds, &transport), DPB_OK);
    const struct dpb_ring_args args = {
        .host = &dpb_host,
        .transport = transport,
        .members = {.name = "duel", .members = members, .n_members = 2, .doorbell = duel->doorbell},
        .memory = {.arena = arena,
                   .arena_bytes = 16384,
                   .inbox = inbox,
                   .n_slots = n_slots,
                   .slot_bytes = slot_bytes},
        .type = DPB_FP32,
        .n_buckets = 1,
        .bucket_elements = 4096};
    assert_int_equal(dpb_ring_create(&args, &duel->ring), DPB_OK);
    dpb_first_error_clear();
    dpb_sums_begin(duel->ring, 5);
    duel->ring->ops->post(duel->ring, 0, 4096);
}

static void duel_begin(struct duel *duel)
{
    duel_begin_with(duel, SLOTS, SLOT_BYTES);
}

static void duel_end(struct duel *duel)
{
    dpb_sums_destroy(duel->ring);
    close(duel->previous);
    close(duel->next);
    dpb_doorbell_close(duel->doorbell);
    dpb_first_error_clear();
}

/* Moves the ring until it comes to rest; its status. */
static dpb_status duel_move(struct duel *duel)
{
    dpb_status status = DPB_OK;
    for (bool moved = true; moved && status == DPB_OK;)
        status = duel->ring->ops->move(duel->ring, INT64_MAX, &moved);
    return status;
}

/* By one of the test's ends. */
static void say(int fd, const void *bytes, size_t n)
{
    assert_int_equal(write(fd, bytes, n), n);
}

static void expect_refused(struct duel *duel, dpb_status status, const char *words)
{
    dpb_status first;
    assert_int_equal(duel_move(duel), status);
    expect_part(dpb_first_error(&first), words);
    duel_end(duel);
}

/* Early ones fill the inbox; one more would need a slot that there is not. */
TEST(test_full_inbox)
{
    struct dpb_mesh_label early = {.kind = DPB_RING_PARTIAL, .exchange = 6, .bytes = 64};
    uint8_t frame[DPB_TCP_FRAME_BYTES + 64] = {0};
    for (uint32_t again = 0; again < SLOTS; again++) {
        struct duel duel;
        duel_begin(&duel);
        for (uint32_t i = 0; i <= SLOTS; i++) {
            early.at_bytes = (i < SLOTS ? i : again) * SLOT_BYTES;
            early.word = i;
            dpb_mesh_write_header(frame, &early);
            say(duel.previous, frame, sizeof frame);
            if (i < SLOTS)
                assert_int_equal(duel_move(&duel), DPB_OK);
        }
        expect_refused(&duel, DPB_FAILED, "rank 0 expected partial sums in a slot of the inbox");
    }
}

/* How many chunks of 1 KiB the ring has sent by a link since the last look, of each kind; slots
 * that it has given back. */
static void count_sent(int fd, uint32_t n[3])
{
    uint8_t bytes[DPB_TCP_FRAME_BYTES + 1024];
    struct dpb_mesh_label label;
    memset(n, 0, 3 * sizeof *n);
    while (recv(fd, bytes, DPB_TCP_FRAME_BYTES, MSG_DONTWAIT) == DPB_TCP_FRAME_BYTES) {
        assert_true(dpb_mesh_read_header(bytes, &label) && label.kind <= DPB_RING_CREDIT);
        if (label.bytes > 0)
            assert_int_equal(recv(fd, bytes, label.bytes, 0), label.bytes);
        n[label.kind] +=
            label.kind == DPB_RING_CREDIT ? (uint32_t)__builtin_popcountll(label.word) : 1;
    }
}

/* A slice is 8 chunks, and the next one's inbox has 4 slots. A slot is used again for a credit, and
 * no credit is believed that is for another one. */
TEST(test_credits)
{
    struct dpb_mesh_label credit = {.kind = DPB_RING_CREDIT};
    uint8_t frame[DPB_TCP_FRAME_BYTES];
    uint32_t n[3];
    struct duel duel;
    duel_begin_with(&duel, 4, 1024);
    assert_int_equal(duel_move(&duel), DPB_OK);
    count_sent(duel.next, n);
    assert_int_equal(n[DPB_RING_PARTIAL], 4);
    for (credit.word = 1; credit.word <= 4; credit.word *= 2) {
        dpb_mesh_write_header(frame, &credit);
        say(duel.next, frame, sizeof frame);
        assert_int_equal(duel.ring->ops->wait(duel.ring), DPB_OK);
        assert_int_equal(duel_move(&duel), DPB_OK);
        count_sent(duel.next, n);
        assert_int_equal(n[DPB_RING_PARTIAL], 1);
    }
    duel_end(&duel);
    /* Two of the eight are used, 0 and 1. */
    static const uint64_t bad[] = {0, 4, 5, 7, 0xff, 0x100, UINT64_C(1) << 63, UINT64_MAX, 1};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        duel_begin(&duel);
        assert_int_equal(duel_move(&duel), DPB_OK);
        credit.word = bad[i];
        credit.bucket = bad[i] == 1; /* slot 64 */
        dpb_mesh_write_header(frame, &credit);
        say(duel.next, frame, sizeof frame);
        expect_refused(&duel, DPB_FAILED, "rank 1 sent a credit for slots");
    }
}

/* What is in a slot is summed, and then the slot is given back: a quarter of them at a time. */
TEST(test_credits_given)
{
    struct dpb_mesh_label chunk = {.kind = DPB_RING_PARTIAL, .exchange = 5, .bytes = 1024};
    uint8_t frame[DPB_TCP_FRAME_BYTES + 1024] = {0};
    uint32_t n[3];
    struct duel duel;
    duel_begin_with(&duel, 8, 1024);
    for (uint32_t i = 0; i < 4; i++) {
        chunk.word = i;
        chunk.at_bytes = (7 - i) * 1024;
        dpb_mesh_write_header(frame, &chunk);
        say(duel.previous, frame, sizeof frame);
        assert_int_equal(duel_move(&duel), DPB_OK);
        count_sent(duel.previous, n);
        assert_int_equal(n[DPB_RING_CREDIT], i % 2 * 2);
    }
    duel_end(&duel);
}

/* The ring also watches the connection to the next rank, from which it expects nothing now. */
TEST(test_early_close)
{
    struct duel duel;
    duel_begin(&duel);
    assert_int_equal(duel_move(&duel), DPB_OK);
    shutdown(duel.next, SHUT_RDWR);
    assert_int_equal(duel.ring->ops->wait(duel.ring), DPB_OK);
    expect_refused(&duel, DPB_PEER, "receiving from rank 1: it closed the connection");
}

static dpb_status wait_for_ring(void *ring)
{
    return ((struct dpb_sums *)ring)->ops->wait(ring);
}

TEST(test_wake)
{
    struct duel duel;
    duel_begin(&duel);
    assert_int_equal(duel_move(&duel), DPB_OK);
    expect_woken(duel.doorbell, wait_for_ring, duel.ring);
    duel_end(&duel);
}

TEST(test_deadline)
{
    struct duel duel;
    dpb_status first;
    dpb_world.timeout_ns = 50000000;
    duel_begin(&duel);
    assert_int_equal(duel_move(&duel), DPB_OK);
    assert_int_equal(duel.ring->ops->wait(duel.ring), DPB_TIMEOUT);
    expect_part(
        dpb_first_error(&first),
        "partial sums (scatter-reduce) from the rank before in the ring (exchange 5, bucket "
        "0, 16384 bytes): rank 1");
    duel_end(&duel);
    dpb_world.timeout_ns = 0;
}

TRIAL_MAIN(cases)
