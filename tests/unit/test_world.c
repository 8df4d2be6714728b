/* needs: native */
/*
 * test_world.c - a job from its start to its end, and all the ways in which it may end.
 */
#include <linux/capability.h>
#include <poll.h>
#include <sched.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>

#include "base/signals.h"
#include "machine/rights.h"
#include "tests/unit/trial.h"
#include "world/store.h"

/* ---- what ranks do ------------------------------------------------------------------------- */

static dpb_status fields(struct trial_scratch *scratch)
{
    char path[64], line[64] = "";
    (void)scratch;
    RANK_CHECK(dpb_world.rank < dpb_world.n_ranks && dpb_world.n_ranks == 4);
    RANK_CHECK(dpb_world.n_workers == 3 && dpb_world.n_servers == 1);
    RANK_CHECK(dpb_world.role == (dpb_world.rank < 3 ? DPB_WORKER : DPB_SERVER));
    RANK_CHECK(dpb_world.timeout_ns == 20000000000 && strcmp(dpb_world.launcher, "local") == 0);
    RANK_CHECK(dpb_world.host[0] != '\0' && dpb_board_ranks(dpb_world.board) == 4);
    RANK_CHECK(dpb_board_page(dpb_world.board, dpb_world.rank)->pid == getpid());
    RANK_CHECK(getenv("DPBENCH_JOB") == NULL); /* programs that a rank starts are no ranks */
    RANK_CHECK(dpb_world_is_rank());
    RANK_CHECK(strcmp(getenv("TRIAL_ADDED"), "new") == 0);
    RANK_CHECK(strcmp(getenv("TRIAL_REPLACED"), "new") == 0);
    RANK_CHECK(strcmp(getenv("TRIAL_KEPT"), "old") == 0);
    RANK_CHECK(fcntl(3, F_GETFD) == FD_CLOEXEC);
    RANK_CHECK(read(STDIN_FILENO, line, 1) == 0);
    sigset_t mask;
    sigprocmask(SIG_SETMASK, NULL, &mask);
    for (int i = 1; i < 32; i++)
        RANK_CHECK(!sigismember(&mask, i));
    snprintf(path, sizeof path, "/proc/%d/cmdline", (int)getpid());
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    RANK_CHECK(read(fd, line, sizeof line) == 8 && strcmp(line, "dpbench") == 0);
    close(fd);
    size_t bytes;
    memset(dpb_board_journal(dpb_world.board, dpb_world.rank, &bytes), 7, 1 << 16);
    RANK_CHECK(bytes == 1 << 16);
    return dpb_store_barrier("done", 0);
}

static dpb_status agreement(struct trial_scratch *scratch)
{
    char value[32] = "layout 7";
    DPB_TRY(dpb_world_agree("the first", value));
    DPB_TRY(dpb_world_agree("the first", value)); /* the same word again is another agreement */
    if (dpb_world.rank >= 2)
        snprintf(value, sizeof value, "layout %u", dpb_world.rank);
    RANK_FAILS(scratch, DPB_FAILED, dpb_world_agree("the layout", value));
    return dpb_store_barrier("said", 0);
}

static uint32_t count_maps(const char *text)
{
    char line[512];
    uint32_t n = 0;
    FILE *file = fopen("/proc/self/maps", "re");
    while (file != NULL && fgets(line, sizeof line, file) != NULL)
        n += strstr(line, text) != NULL;
    if (file != NULL)
        fclose(file);
    return n;
}

/* Each rank writes what all others read; then each writes into its neighbour's. */
static dpb_status sharing(struct trial_scratch *scratch)
{
    enum { N = 4 };
    static const struct dpb_offer mine[N] = {
        {"trial", 64, 0}, {"trial", 5 << 20, 0}, {"trial", 0, 0}, {"trial", 8192, 20480}};
    struct dpb_shared shared;
    uint32_t n = dpb_world.n_ranks, me = dpb_world.rank;
    (void)scratch;
    trial_sleep_ms(me % 3 * 20);
    DPB_TRY(dpb_world_share("trial", mine, N, &shared));
    const struct dpb_mapping *own = &shared.of[me * N];
    RANK_CHECK(own[2].memory == NULL);
    uint32_t *last = (uint32_t *)((char *)own[1].memory + mine[1].bytes) - 1;
    RANK_CHECK(*last == 0);
    *last = 1000 + me;
    *(uint32_t *)own[3].memory = 2000 + me;
    DPB_TRY(dpb_store_barrier("began", 0));
    for (uint32_t rank = 0; rank < n; rank++) {
        const struct dpb_mapping *his = &shared.of[rank * N];
        RANK_CHECK(his[0].bytes == 64 && his[1].bytes == 5 << 20 && his[2].memory == NULL);
        RANK_CHECK(((uint32_t *)((char *)his[1].memory + mine[1].bytes))[-1] == 1000 + rank);
        for (size_t at = 0; at < mine[3].window; at += mine[3].bytes) /* again and again */
            RANK_CHECK(*(uint32_t *)((char *)his[3].memory + at) == 2000 + rank);
    }
    /* A memory is mapped once, however many ranks there are; a window in three pieces. */
    RANK_CHECK(count_maps("/memfd:dpbench-trial") <= 3 + 3 * n);
    *(uint32_t *)shared.of[(me + 1) % n * N].memory = 77 + me;
    DPB_TRY(dpb_store_barrier("written", 0));
    RANK_CHECK(*(uint32_t *)own[0].memory == 77 + (me + n - 1) % n);
    dpb_shared_destroy(&shared);
    int fd = dup(0);
    RANK_CHECK(fd == 4 && count_maps("/memfd:dpbench-trial") == 0); /* nothing stayed open */
    return DPB_OK;
}

/* Rank 0 maps all others' memory, and each of them rank 0's. */
static dpb_status sharing_with_0(struct trial_scratch *scratch)
{
    struct dpb_mapping mine, peers[TRIAL_RANKS];
    (void)scratch;
    DPB_TRY(dpb_mapping_create("trial", 64, &mine));
    *(uint32_t *)mine.memory = 1000 + dpb_world.rank;
    DPB_TRY(dpb_world_share_with_0("trial", &mine, 1, peers));
    for (uint32_t rank = 0; rank < dpb_world.n_ranks; rank++) {
        const bool maps = rank == dpb_world.rank || rank == 0 || dpb_world.rank == 0;
        RANK_CHECK((peers[rank].memory != NULL) == maps);
        RANK_CHECK(!maps || *(uint32_t *)peers[rank].memory == 1000 + rank);
        if (rank != dpb_world.rank)
            dpb_mapping_destroy(&peers[rank]);
    }
    DPB_TRY(dpb_store_barrier("read", 0));
    dpb_mapping_destroy(&mine);
    return DPB_OK;
}

/* Linked with --wrap=recvmsg. A read that finds nothing meets a peer that says its last word and
 * closes: Linux may answer 0, although the word is there. */
static bool peers_close_during_reads;

ssize_t __real_recvmsg(int socket, struct msghdr *message, int flags);
ssize_t __wrap_recvmsg(int socket, struct msghdr *message, int flags);

ssize_t __wrap_recvmsg(int socket, struct msghdr *message, int flags)
{
    struct pollfd closing = {.fd = socket, .events = POLLRDHUP};
    ssize_t got = __real_recvmsg(socket, message, flags);
    if (got >= 0 || errno != EAGAIN || !peers_close_during_reads)
        return got;
    if (poll(&closing, 1, 200) == 1)
        return 0;
    errno = EAGAIN;
    return -1;
}

static dpb_status sharing_while_peers_close(struct trial_scratch *scratch)
{
    peers_close_during_reads = true;
    return sharing(scratch);
}

/* Ranks 0 and 2 are on one machine, 1 and 3 on another. */
static dpb_status sharing_apart(struct trial_scratch *scratch)
{
    const struct dpb_offer mine = {.name = "trial", .bytes = 64};
    struct dpb_shared shared;
    (void)scratch;
    RANK_CHECK(dpb_world.n_machines == 2 && dpb_world.n_local == 2);
    DPB_TRY(dpb_world_share("trial", &mine, 1, &shared));
    *(uint32_t *)shared.of[dpb_world.rank].memory = 1000 + dpb_world.rank;
    DPB_TRY(dpb_store_barrier("written", 0));
    for (uint32_t rank = 0; rank < dpb_world.n_ranks; rank++) {
        bool local = rank % 2 == dpb_world.rank % 2;
        RANK_CHECK(dpb_world.machines[rank] == rank % 2 && dpb_world_is_local(rank) == local);
        RANK_CHECK((shared.of[rank].memory != NULL) == local);
        RANK_CHECK(!local || *(uint32_t *)shared.of[rank].memory == 1000 + rank);
    }
    dpb_shared_destroy(&shared);
    return DPB_OK;
}

static dpb_status mapping(struct trial_scratch *scratch)
{
    struct dpb_mapping made;
    (void)scratch;
    DPB_TRY(dpb_mapping_create("weights", 8192, &made));
    RANK_CHECK(count_maps("/memfd:dpbench-weights") == 1);
    RANK_CHECK(ftruncate(made.fd, 0) != 0); /* sealed: nobody takes it away from under us */
    dpb_mapping_destroy(&made);
    RANK_CHECK(count_maps("/memfd:dpbench-weights") == 0 && made.memory == NULL);
    dpb_mapping_destroy(&made);
    return DPB_OK;
}

/* Rank 1 knocks at rank 0's socket as one who does not know the secret, with a descriptor; then
 * takes part as it should. */
static dpb_status stranger(struct trial_scratch *scratch)
{
    struct dpb_mapping mine, peers[2];
    (void)scratch;
    DPB_TRY(dpb_mapping_create("arena", 4096, &mine));
    *(uint32_t *)mine.memory = dpb_world.rank + 5;
    if (dpb_world.rank == 1) {
        struct sockaddr_un address;
        size_t bytes = sizeof address;
        char hello[176], byte;
        DPB_TRY(dpb_store.get("share/arena/0", &address, &bytes, 0));
        for (int form = 0; form < 3; form++) {
            int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
            RANK_CHECK(connect(fd, (struct sockaddr *)&address, (socklen_t)bytes) == 0);
            /* 0: the right form but the secret; 1: short; 2: silent until closed */
            memset(hello, 0, sizeof hello);
            memcpy(hello, "DPSHARE1", 8);
            hello[8] = 1;  /* rank */
            hello[12] = 1; /* mappings */
            if (form < 2)
                RANK_CHECK(send(fd, hello, form == 0 ? sizeof hello : 5, 0) > 0);
            if (form < 2)
                RANK_CHECK(recv(fd, &byte, 1, 0) <= 0); /* hung up, nothing was said */
            close(fd);
        }
    }
    DPB_TRY(dpb_world_share_with_0("arena", &mine, 1, peers));
    RANK_CHECK(*(uint32_t *)peers[1 - dpb_world.rank].memory == 6 - dpb_world.rank);
    dpb_mapping_destroy(&mine);
    dpb_mapping_destroy(&peers[1 - dpb_world.rank]);
    return DPB_OK;
}

/* As many descriptors of this user are on their way as the system allows: rank 0 gets rank 1's
 * hello, and cannot send its own. */
static dpb_status cannot_send(struct trial_scratch *scratch)
{
    const struct dpb_offer mine = {.name = "arena", .bytes = 4096};
    struct dpb_shared shared;
    struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
    const struct __user_cap_data_struct none[2] = {{0}};
    const struct rlimit few = {64, 64};
    static const int fds[DPB_RIGHTS_MOST];
    int ends[2];
    (void)scratch;
    if (dpb_world.rank == 1) {
        dpb_world.timeout_ns *= 20;
        return dpb_world_share("arena", &mine, 1, &shared);
    }
    RANK_CHECK(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) == 0);
    /* Far beyond the limit: the user's descriptors on the way count, of other processes, too. */
    for (int i = 0; i < 8; i++)
        RANK_CHECK(dpb_rights_send(ends[0], "", 1, MSG_DONTWAIT, fds, DPB_RIGHTS_MOST) == 1);
    RANK_CHECK(syscall(SYS_capset, &header, none) == 0); /* root is above the limit */
    RANK_CHECK(setrlimit(RLIMIT_NOFILE, &few) == 0);
    while (dpb_rights_send(ends[0], "", 1, MSG_DONTWAIT, fds, DPB_RIGHTS_MOST) == 1)
        ;
    RANK_CHECK(errno == ETOOMANYREFS);
    return dpb_world_share("arena", &mine, 1, &shared);
}

static dpb_status counts_differ(struct trial_scratch *scratch)
{
    const struct dpb_offer mine[2] = {{"arena", 4096, 0}, {"arena", 4096, 0}};
    struct dpb_shared shared;
    (void)scratch;
    return dpb_world_share("arena", mine, dpb_world.rank == 0 ? 1 : 2, &shared);
}

static dpb_status in_barrier(struct trial_scratch *scratch)
{
    (void)scratch;
    if (dpb_world.rank == 1) {
        dpb_world_note("thinking", 3, 0);
        dpb_board_page(dpb_world.board, 1)->step = 12;
        pause();
    }
    return dpb_store_barrier("never", 0);
}

static dpb_status in_get(struct trial_scratch *scratch)
{
    char value;
    size_t bytes = 1;
    (void)scratch;
    if (dpb_world.rank == 1)
        return dpb_store_barrier("never", 0);
    return dpb_store.get("never", &value, &bytes, 0);
}

static dpb_status in_share(struct trial_scratch *scratch)
{
    const struct dpb_offer mine = {.name = "arena", .bytes = 4096};
    struct dpb_shared shared;
    (void)scratch;
    if (dpb_world.rank == 1)
        pause();
    return dpb_world_share("arena", &mine, 1, &shared);
}

static dpb_status in_flag(struct trial_scratch *scratch)
{
    static struct dpb_flag flag;
    struct dpb_wait what = {.bucket = 1, .peer = 1, .purpose = "gradients of the peer"};
    (void)scratch;
    if (dpb_world.rank == 1)
        pause();
    return dpb_flags.wait(&flag, 1, &what);
}

/* Does not notice the job's end at all. */
static dpb_status in_loop(struct trial_scratch *scratch)
{
    (void)scratch;
    for (;;)
        trial_sleep_ms(1000);
    return DPB_OK;
}

static dpb_status exits_early(struct trial_scratch *scratch)
{
    (void)scratch;
    if (dpb_world.rank == 1)
        _exit(0);
    return dpb_store_barrier("never", 0);
}

static dpb_status fails(struct trial_scratch *scratch)
{
    (void)scratch;
    if (dpb_world.rank == 1)
        return dpb_fail(DPB_DATA, "x.png: not an image");
    return dpb_store_barrier("never", 0);
}

static dpb_status verification(struct trial_scratch *scratch)
{
    (void)scratch;
    return dpb_fail(DPB_VERIFICATION, "replicas differ");
}

/* The others see rank 1's end before the launcher does, and say so. */
static dpb_status blames_peer(struct trial_scratch *scratch)
{
    (void)scratch;
    if (dpb_world.rank == 1) {
        kill(getpid(), SIGKILL);
    }
    int32_t pid; /* 0: it has not begun yet */
    do
        pid = __atomic_load_n(&scratch->pids[1], __ATOMIC_RELAXED);
    while (pid == 0 || trial_alive(pid));
    return dpb_fail(DPB_IO, "connection to rank 1 lost");
}

/* A victim that speaks, and ends, before the one that is to blame. */
static dpb_status victim_first(struct trial_scratch *scratch)
{
    (void)scratch;
    if (dpb_world.rank == 1) {
        trial_sleep_ms(300);
        return dpb_fail(DPB_IO, "the disk is full");
    }
    return dpb_fail(DPB_PEER, "rank 1 has hung up");
}

/* Every rank is a victim: the first to say so tells most. */
static dpb_status all_victims(struct trial_scratch *scratch)
{
    (void)scratch;
    if (dpb_world.rank == 2)
        return dpb_fail(DPB_PEER, "rank 1 has hung up");
    char value[8];
    size_t size = sizeof value;
    return dpb_store.get("never", value, &size, 0);
}

static dpb_status crashes(struct trial_scratch *scratch)
{
    (void)scratch;
    if (dpb_world.rank == 2)
        abort();
    return dpb_store_barrier("never", 0);
}

static dpb_status warns(struct trial_scratch *scratch)
{
    (void)scratch;
    dpb_warn("few_cores", "there are few cores");
    if (dpb_world.rank == 1)
        dpb_warn("other", "a word of rank 1");
    return DPB_OK;
}

/* A message arrives whole, and a warning that is too long for its rank's page shows that. */
static dpb_status talks_much(struct trial_scratch *scratch)
{
    (void)scratch;
    if (dpb_world.rank == 1) {
        char text[401] = "x"; /* characters of two bytes behind it */
        for (size_t i = 1; i + 2 < sizeof text; i += 2)
            memcpy(text + i, "\xc3\xa4", 3);
        dpb_warn("long", "%s", text);
        return dpb_fail(DPB_DATA, "%03000d, the end", 7);
    }
    return dpb_store_barrier("never", 0);
}

/* A program that a rank has started is part of the job. */
static dpb_status starts_another(struct trial_scratch *scratch)
{
    if (dpb_world.rank == 0) {
        pid_t child = fork();
        if (child == 0) {
            trial_sleep_ms(100000);
            _exit(0);
        }
        scratch->extra_pid = (int32_t)child;
    }
    return DPB_OK;
}

/* Works until the interruption, then ends as a rank should. */
static dpb_status until_interrupted(struct trial_scratch *scratch)
{
    (void)scratch;
    while (dpb_board_interrupted(dpb_world.board) == 0)
        trial_sleep_ms(20);
    DPB_TRY(dpb_store_barrier("interrupted", 0));
    return DPB_INTERRUPTED;
}

enum { FEW_DESCRIPTORS = 40 };

static dpb_status polls_many(struct trial_scratch *scratch)
{
    struct pollfd fds[FEW_DESCRIPTORS + 1];
    const struct dpb_wait what = {.bucket = UINT64_MAX, .peer = UINT32_MAX};
    for (size_t i = 0; i < sizeof fds / sizeof *fds; i++)
        fds[i] = (struct pollfd){.fd = -1};
    RANK_FAILS(scratch, DPB_IO, dpb_world_poll(fds, FEW_DESCRIPTORS + 1, &what, NULL));
    return DPB_OK;
}

static dpb_status may_spin(struct trial_scratch *scratch)
{
    (void)scratch;
    RANK_CHECK(dpb_world.may_spin);
    return dpb_store_barrier("done", 0);
}

static dpb_status may_not_spin(struct trial_scratch *scratch)
{
    (void)scratch;
    RANK_CHECK(!dpb_world.may_spin);
    return dpb_store_barrier("done", 0);
}

static const struct trial_case cases[] = {
    {"fields", fields},
    {"may_spin", may_spin},
    {"may_not_spin", may_not_spin},
    {"agreement", agreement},
    {"sharing", sharing},
    {"sharing_with_0", sharing_with_0},
    {"sharing_while_peers_close", sharing_while_peers_close},
    {"sharing_apart", sharing_apart},
    {"mapping", mapping},
    {"stranger", stranger},
    {"counts_differ", counts_differ},
    {"cannot_send", cannot_send},
    {"in_barrier", in_barrier},
    {"in_get", in_get},
    {"in_share", in_share},
    {"in_flag", in_flag},
    {"in_loop", in_loop},
    {"exits_early", exits_early},
    {"fails", fails},
    {"verification", verification},
    {"blames_peer", blames_peer},
    {"victim_first", victim_first},
    {"all_victims", all_victims},
    {"crashes", crashes},
    {"warns", warns},
    {"talks_much", talks_much},
    {"starts_another", starts_another},
    {"until_interrupted", until_interrupted},
    {"polls_many", polls_many},
    {NULL, NULL},
};

/* ---- jobs that end well -------------------------------------------------------------------- */

TEST(test_fields)
{
    static const char *const environment[] = {"TRIAL_ADDED=new", "TRIAL_REPLACED=new", NULL};
    struct trial trial = {.name = "fields",
                          .n_workers = 3,
                          .n_servers = 1,
                          .timeout_s = 20,
                          .environment = environment,
                          .n_jobs = 3};
    setenv("TRIAL_REPLACED", "old", 1);
    setenv("TRIAL_KEPT", "old", 1);
    trial_run(&trial);
    if (trial.at->status != DPB_OK)
        fail_msg("%s", trial.at->cause);
    assert_int_equal(trial.at->n_ready, 12); /* 3 jobs of 4 */
}

/* Ranks spin while they wait if each has a core, servers among them. */
TEST(test_spins_on_a_core_of_its_own)
{
    cpu_set_t all, few;
    assert_int_equal(sched_getaffinity(0, sizeof all, &all), 0);
    CPU_ZERO(&few);
    for (uint32_t cpu = 0, n = 0; cpu < CPU_SETSIZE && n < 2; cpu++) {
        if (!CPU_ISSET(cpu, &all))
            continue;
        CPU_SET(cpu, &few);
        n++;
        assert_int_equal(sched_setaffinity(0, sizeof few, &few), 0);
        trial_passes("may_spin", n, 0);
        trial_passes("may_not_spin", n, 1);
    }
    assert_int_equal(sched_setaffinity(0, sizeof all, &all), 0);
}

TEST(test_agree)
{
    struct trial trial = {.name = "agreement", .n_workers = 4, .timeout_s = 20};
    trial_run(&trial);
    if (trial.at->status != DPB_OK)
        fail_msg("%s", trial.at->cause);
    for (uint32_t rank = 0; rank < 4; rank++)
        expect_part(trial.at->text[rank], "the ranks differ in the layout: rank 0 has "
                                          "'layout 7', rank 2 has 'layout 2'");
}

TEST(test_share)
{
    trial_passes("mapping", 1, 0);
    trial_passes("sharing", 1, 0);
    trial_passes("sharing", 2, 0);
    trial_passes("sharing", 3, 2);
    trial_passes("sharing", 16, 0);
    trial_passes("sharing_with_0", 1, 0);
    trial_passes("sharing_with_0", 3, 2);
    trial_passes("sharing_while_peers_close", 4, 0);
}

TEST(test_share_apart)
{
    static const uint32_t machines[] = {0, 1, 0, 1};
    struct trial trial = {.name = "sharing_apart",
                          .n_workers = 3,
                          .n_servers = 1,
                          .timeout_s = 20,
                          .machines = machines};
    trial_run(&trial);
    if (trial.at->status != DPB_OK)
        fail_msg("%s", trial.at->cause);
}

TEST(test_stranger)
{
    struct trial trial = {.name = "stranger", .n_workers = 2, .timeout_s = 20};
    trial_run(&trial);
    if (trial.at->status != DPB_OK)
        fail_msg("%s", trial.at->cause);
    expect_part(trial.errors, "refused a connection without the job's secret");
}

TEST(test_polls_many)
{
    struct trial trial = {
        .name = "polls_many", .n_workers = 1, .timeout_s = 5, .most_descriptors = FEW_DESCRIPTORS};
    trial_run(&trial);
    expect_part(trial.at->text[0], "this process may have 40 open files");
}

TEST(test_warnings_once)
{
    struct trial trial = {.name = "warns", .n_workers = 4, .timeout_s = 20};
    trial_run(&trial);
    assert_int_equal(trial.at->status, DPB_OK);
    const char *first = strstr(trial.errors, "few cores");
    assert_non_null(first);
    assert_null(strstr(first + 1, "few cores"));
    expect_part(trial.errors, "[1 ");
    expect_part(trial.errors, "a word of rank 1");
}

TEST(test_long_messages)
{
    struct trial trial = {.name = "talks_much", .n_workers = 2, .timeout_s = 20};
    trial_run(&trial);
    assert_int_equal(trial.at->status, DPB_DATA);
    expect_part(trial.at->cause, "7, the end");
    expect_part(trial.errors, "7, the end");
    expect_part(trial.errors, "\xc3\xa4...");
}

TEST(test_nothing_survives)
{
    struct trial trial = {.name = "starts_another", .n_workers = 2, .timeout_s = 20};
    trial_run(&trial);
    assert_int_equal(trial.at->status, DPB_OK);
    assert_true(trial.at->extra_pid > 0);
    assert_true(trial_gone_within(trial.at->extra_pid, 1000));
}

/* ---- jobs that one rank ends --------------------------------------------------------------- */

static void kill_rank_1(struct trial *trial)
{
    trial_sleep_ms(100);
    kill(trial->at->pids[1], SIGKILL);
}

static void stop_rank_1(struct trial *trial)
{
    kill(trial->at->pids[1], SIGSTOP);
}

/* How long a job takes that ends well, as busy as the machine is. */
static double quiet_job_s(void)
{
    struct trial trial = {.name = "sharing", .n_workers = 3, .timeout_s = 20};
    trial_run(&trial);
    assert_int_equal(trial.at->status, DPB_OK);
    double seconds = trial.at->seconds;
    return seconds;
}

TEST(test_first_cause)
{
    static const struct {
        const char *name;
        void (*act)(struct trial *trial);
        dpb_status status;
        uint32_t culprit;
        const char *parts[2];
        double seconds; /* at most, on a quiet machine: less than until SIGKILL, but for in_loop */
    } expected[] = {
        {"in_barrier",
         kill_rank_1,
         DPB_FAILED,
         1,
         {"killed by signal 9", "in phase 'thinking' of step 12, bucket 3"},
         1.5},
        {"in_get", kill_rank_1, DPB_FAILED, 1, {"killed by signal 9", "rank 1"}, 1.5},
        {"in_share", kill_rank_1, DPB_FAILED, 1, {"killed by signal 9", "rank 1"}, 1.5},
        {"in_flag", kill_rank_1, DPB_FAILED, 1, {"killed by signal 9", "rank 1"}, 1.5},
        {"in_loop", kill_rank_1, DPB_FAILED, 1, {"killed by signal 9", "rank 1"}, 4},
        {"exits_early", NULL, DPB_FAILED, 1, {"before the job was over", "no reason"}, 1.5},
        {"fails", NULL, DPB_DATA, 1, {"x.png: not an image", "rank 1"}, 1.5},
        {"verification", NULL, DPB_VERIFICATION, UINT32_MAX, {"replicas differ", "rank"}, 1.5},
        {"blames_peer", NULL, DPB_FAILED, 1, {"killed by signal 9", "rank 1"}, 1.5},
        {"victim_first", NULL, DPB_IO, 1, {"the disk is full", "rank 1"}, 1.5},
        {"all_victims", NULL, DPB_FAILED, 2, {"rank 1 has hung up", "rank 2"}, 1.5},
        {"crashes", NULL, DPB_FAILED, 2, {"killed by signal 6", "rank 2"}, 2.5},
        {"counts_differ", NULL, DPB_FAILED, UINT32_MAX, {"sharing of arena", "mappings"}, 1.5},
    };
    for (size_t i = 0; i < sizeof expected / sizeof *expected; i++) {
        struct trial trial = {
            .name = expected[i].name, .n_workers = 3, .timeout_s = 20, .act = expected[i].act};
        trial_run_within(&trial, expected[i].seconds + 2 * quiet_job_s());
        if (trial.at->launch_status != DPB_OK || trial.at->status != expected[i].status ||
            trial.at->exit_code != dpb_status_exit_code(expected[i].status))
            fail_msg("%s: status %s: %s", trial.name, dpb_status_name(trial.at->status),
                     trial.at->cause);
        if (expected[i].culprit != UINT32_MAX)
            assert_int_equal(trial.at->culprit, expected[i].culprit);
        for (size_t j = 0; j < 2; j++)
            expect_part(trial.at->cause, expected[i].parts[j]);
        expect_part(trial.errors, trial.at->cause);
        const char *once = strstr(trial.errors, "error: ");
        assert_true(once != NULL && strstr(once + 1, "error: ") == NULL);
    }
}

/* Nobody dies: the deadline of those who wait ends the job and names the one who is stopped. */
TEST(test_stopped)
{
    static const char *const names[] = {"in_flag", "in_share", "in_barrier"};
    for (size_t i = 0; i < 3; i++) {
        struct trial trial = {.name = names[i], .n_workers = 2, .timeout_s = 1, .act = stop_rank_1};
        trial_run_within(&trial, 5);
        assert_int_equal(trial.at->status, DPB_TIMEOUT);
        assert_int_equal(trial.at->culprit, 0);
        expect_part(trial.at->cause, "waited 1.");
        expect_part(trial.at->cause, "rank 1 (pid");
        expect_part(trial.at->cause, "is stopped (SIGSTOP)");
    }
}

TEST(test_cannot_send)
{
    struct trial trial = {.name = "cannot_send", .n_workers = 2, .timeout_s = 1};
    trial_run_within(&trial, 5);
    assert_int_equal(trial.at->status, DPB_TIMEOUT);
    assert_int_equal(trial.at->culprit, 0);
    expect_part(trial.at->cause, "waited 1.0 s to share arena: rank 1 (pid");
}

/* ---- jobs that somebody else ends ---------------------------------------------------------- */

static void kill_launcher(struct trial *trial)
{
    kill(trial->launcher, SIGKILL);
}

TEST(test_launcher_killed)
{
    static const char *const names[] = {"in_barrier", "in_loop", "in_flag"};
    for (size_t i = 0; i < 3; i++) {
        struct trial trial = {
            .name = names[i], .n_workers = 3, .timeout_s = 20, .act = kill_launcher};
        trial_run(&trial); /* checks that the ranks are gone within 2 s */
        assert_true(WIFSIGNALED(trial.wait_status));
    }
}

static void interrupt_launcher(struct trial *trial)
{
    kill(trial->launcher, SIGINT);
}

static void terminate_launcher(struct trial *trial)
{
    kill(trial->launcher, SIGTERM);
}

static void interrupt_twice(struct trial *trial)
{
    signal_process(trial->launcher, SIGINT);
    trial_sleep_ms(200);
    assert_true(trial_alive(trial->at->pids[0])); /* the first one is only passed on */
    kill(trial->launcher, SIGINT);
}

TEST(test_interrupted)
{
    static const struct {
        const char *name;
        void (*act)(struct trial *trial);
        int exit_code;
        const char *part;
    } expected[] = {
        {"until_interrupted", interrupt_launcher, 130, "interrupted by signal 2"},
        {"until_interrupted", terminate_launcher, 143, "interrupted by signal 15"},
        {"in_loop", interrupt_twice, 130, "a second one ended the job"},
    };
    for (size_t i = 0; i < sizeof expected / sizeof *expected; i++) {
        struct trial trial = {
            .name = expected[i].name, .n_workers = 2, .timeout_s = 20, .act = expected[i].act};
        trial_run_within(&trial, 2 + 2 * quiet_job_s());
        assert_int_equal(trial.at->status, DPB_INTERRUPTED);
        assert_int_equal(trial.at->exit_code, expected[i].exit_code);
        assert_true(WIFEXITED(trial.wait_status));
        assert_int_equal(WEXITSTATUS(trial.wait_status), expected[i].exit_code);
        expect_part(trial.at->cause, expected[i].part);
    }
}

/* As `timeout` sends them. */
TEST(test_signals_in_pairs)
{
    const struct timespec longer = {.tv_nsec = 110000000};
    struct dpb_signals signals;
    int64_t begun_ns;
    bool first, second;
    do {
        signals = (struct dpb_signals){.counted = 0};
        begun_ns = dpb_now_ns();
        first = dpb_signals_interrupts(&signals, SIGINT);
        second = dpb_signals_interrupts(&signals, SIGINT);
    } while (dpb_now_ns() - begun_ns >= INT64_C(100000000));
    assert_true(first);
    assert_false(second);
    assert_true(dpb_signals_interrupts(&signals, SIGTERM));
    nanosleep(&longer, NULL);
    assert_true(dpb_signals_interrupts(&signals, SIGTERM));
}

/* No launch here gets as far as a process: a job of few ranks is refused for its journals. */
TEST(test_ranks_at_most)
{
    static const struct {
        uint32_t n_workers, n_servers;
        const char *why;
    } rows[] = {{0, 0, "a job has 1 to 1024 workers"},
                {0, 1, "a job has 1 to 1024 workers"},
                {1025, 0, "a job has 1 to 1024 workers"},
                {1024, 1, "a job has 1 to 1024 workers"},
                {1, 1024, "a job has 1 to 1024 workers"},
                {1, UINT32_MAX, "a job has 1 to 1024 workers"},
                {1024, 0, "for each of 1024 processes is too large"},
                {1023, 1, "for each of 1024 processes is too large"}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const struct dpb_job job = {.n_workers = rows[i].n_workers,
                                    .n_servers = rows[i].n_servers,
                                    .config = "",
                                    .journal_bytes = SIZE_MAX / 2};
        struct dpb_job_outcome outcome;
        dpb_status status;
        assert_int_equal(dpb_launch(&job, &outcome), DPB_USAGE);
        expect_part(dpb_first_error(&status), rows[i].why);
        dpb_first_error_clear();
    }
}

TRIAL_MAIN(cases)
