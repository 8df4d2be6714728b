/* needs: cells */
/*
 * test_environment.c - a job by variables alone, as torchrun and Kubernetes set them: what is
 * missing or wrong is refused by name, a secret stays one, and machines are told apart.
 * (test_launchers.c: that such a job does all that one of mpirun does.)
 *
 * DPB_ALL_CELLS: 3,000 strangers come while a job starts instead of 200.
 */
#include <arpa/inet.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "lib/network.h"
#include "lib/sandbox.h"
#include "lib/says.h"
#include "lib/siege.h"
#include "lib/test.h"

static const double deadline_s = 60.0;
static struct network network;

#define SECRET "DPBENCH_SECRET=correct horse battery staple"
#define BASE "-c job.ini --output result.json "
enum { MOST = 8, FIRST_PORT = 20000 };

/* Each test has a port, and so has each process that runs this test. From 32768 on, connections of
 * other processes may hold it. */
static unsigned port_of(unsigned number)
{
    return FIRST_PORT + ((unsigned)getpid() * 16 + number) % 12000;
}

/* One rank's process: the variables of torchrun but LOCAL_WORLD_SIZE, and others, which may be the
 * same again, or NULL. `host`: of the network; -1: none. */
static void start(struct started *started, int host, int rank, int n, unsigned port,
                  const char *const *others, const char *arguments)
{
    char of_rank[16], of_size[24], of_port[24], line[1024];
    const char *environment[MOST + 5] = {
        of_rank, of_size, of_port, host < 0 ? "MASTER_ADDR=localhost" : "MASTER_ADDR=10.9.0.1"};
    snprintf(of_rank, sizeof of_rank, "RANK=%d", rank);
    snprintf(of_size, sizeof of_size, "WORLD_SIZE=%d", n);
    snprintf(of_port, sizeof of_port, "MASTER_PORT=%u", port);
    for (int i = 0; others && others[i]; i++)
        environment[4 + i] = others[i];
    if (host < 0)
        snprintf(line, sizeof line, "%s/dpbench %s", build_directory(), arguments);
    else
        snprintf(line, sizeof line, "/usr/bin/nsenter --net=/proc/%d/ns/net %s/dpbench %s",
                 (int)network.keepers[host], build_directory(), arguments);
    line_start(started, environment, "%s", line);
}

static json_t *take_result(void)
{
    json_t *result = json_load_file("result.json", 0, NULL);
    unlink("result.json");
    return own_json(result);
}

/* Two ranks; what rank 0 and rank 1 said. */
static void run_two(struct command said[2], const int hosts[2], unsigned port,
                    const char *const *const others[2], const char *arguments)
{
    struct started started[2];
    for (int rank = 0; rank < 2; rank++)
        start(&started[rank], hosts[rank], rank, 2, port, others[rank], arguments);
    for (int rank = 0; rank < 2; rank++)
        command_finish(&started[rank], &said[rank], deadline_s);
}

static const int nowhere[2] = {-1, -1};

TEST(test_refused)
{
    static const struct {
        const char *others[3], *words[3];
    } rows[] = {
        {{NULL}, {"nothing proves which processes are of the job", "run.open = yes"}},
        {{"DPBENCH_SECRET=short"}, {"DPBENCH_SECRET: a secret of 5 characters"}},
        {{SECRET, "DPBENCH_SECRET_FILE=a"}, {"are both set"}},
        {{"DPBENCH_SECRET_FILE=nowhere"}, {"DPBENCH_SECRET_FILE = nowhere: No such"}},
        {{"DPBENCH_SECRET_FILE=."}, {"DPBENCH_SECRET_FILE = . is no file"}},
        {{"DPBENCH_SECRET_FILE=seen"}, {"seen has mode 0640", "chmod 600"}},
        {{SECRET, "RANK=first"}, {"RANK = 'first' beside WORLD_SIZE = 2 is no rank"}},
        {{SECRET, "RANK=2"}, {"RANK = 2, and the job has 2 ranks"}},
        {{SECRET, "WORLD_SIZE=5000"}, {"5000 ranks; a job has at most 1024"}},
        {{SECRET, "MASTER_ADDR=a b"}, {"MASTER_ADDR = 'a b' is no name"}},
        {{SECRET, "MASTER_PORT=65535"}, {"MASTER_PORT = '65535'", "set run.port"}},
    };
    sandbox_write("seen", "correct horse battery staple\n");
    assert_int_equal(chmod("seen", 0640), 0);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct started started;
        struct command command;
        start(&started, -1, 0, 2, port_of(0), rows[i].others, BASE);
        command_finish(&started, &command, deadline_s);
        if (command.exit_code != 2)
            fail_msg("row %zu: exit %d\n%s", i, command.exit_code, command.err);
        expect_words("refused", command.err, rows[i].words);
    }
}

/* With the variables of a shell alone. */
TEST(test_incomplete)
{
    static const struct {
        const char *variables[5], *words[3];
    } rows[] = {
        {{"RANK=1", "WORLD_SIZE=2"}, {"RANK = 1 and WORLD_SIZE = 2", "MASTER_ADDR is not set"}},
        {{"RANK=1", "WORLD_SIZE=2", "MASTER_ADDR=a", SECRET},
         {"where does rank 0 listen?", "MASTER_PORT"}},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct started started;
        struct command command;
        dpbench_start(&started, rows[i].variables, BASE);
        command_finish(&started, &command, deadline_s);
        assert_int_equal(command.exit_code, 2);
        expect_words("incomplete", command.err, rows[i].words);
    }
}

/* Those of a launcher that dpbench cannot use are named, and the job is the process's own. */
TEST(test_unused)
{
    static const struct {
        const char *variables[3], *word;
    } rows[] = {{{"PMI_RANK=1", "PMI_SIZE=2"}, "mpiexec has started 2 processes without PMIx"},
                {{"FLUX_TASK_RANK=1", "FLUX_JOB_SIZE=4"}, "flux has started 4 processes"},
                {{"RANK=0", "WORLD_SIZE=1"}, ""}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct started started;
        struct command command;
        dpbench_start(&started, rows[i].variables, BASE "run.workers=1");
        command_finish(&started, &command, deadline_s);
        assert_int_equal(command.exit_code, 0);
        expect_part(command.err, rows[i].word);
        assert_string_equal(json_text_at(take_result(), "world.launcher"), "local");
    }
}

/* The secret is in no document and in no process that the ranks see. */
TEST(test_secret)
{
    struct command said[2], shown;
    const char *const *const files[2] = {WORDS("DPBENCH_SECRET_FILE=kept"),
                                         WORDS("DPBENCH_SECRET_FILE=kept")};
    const char *const *const texts[2] = {WORDS(SECRET), WORDS(SECRET)};
    sandbox_write("kept", "correct horse battery staple\n");
    assert_int_equal(chmod("kept", 0600), 0);
    for (int i = 0; i < 2; i++) {
        run_two(said, nowhere, port_of(1), i == 0 ? files : texts, BASE "comm.name=ring_tcp");
        if (said[0].exit_code != 0 || said[1].exit_code != 0)
            fail_msg("exit %d, %d\n%s%s", said[0].exit_code, said[1].exit_code, said[0].err,
                     said[1].err);
        command_run(&shown, deadline_s,
                    WORDS("/bin/sh", "-c", "! grep -e horse -e SECRET result.json"), NULL);
        assert_int_equal(shown.exit_code, 0);
        json_t *result = take_result();
        assert_string_equal(json_text_at(result, "world.launcher"), "environment");
        assert_true(json_number_at(result, "world.workers") == 2);
        assert_true(json_number_at(result, "world.machines") == 1);
        assert_string_equal(said[1].out, "");
    }
}

/* A process with another secret, and one that was told of another job, are none of this one. */
TEST(test_strangers)
{
    struct command said[2];
    const char *const *const secrets[2] = {WORDS(SECRET),
                                           WORDS("DPBENCH_SECRET=another one of that length")};
    const char *const *const sizes[2] = {WORDS(SECRET), WORDS(SECRET, "WORLD_SIZE=3")};
    run_two(said, nowhere, port_of(2), secrets, BASE "run.timeout_s=0.5");
    assert_int_equal(said[0].exit_code, 1);
    EXPECT_WORDS("another secret", said[0].err, "dropped a connection from",
                 "rank 1 has not connected to rank 0's launcher");
    run_two(said, nowhere, port_of(3), sizes, BASE "run.timeout_s=0.5");
    assert_int_equal(said[0].exit_code, 2);
    EXPECT_WORDS("another size", said[0].err, "rank 0 was told of 2 ranks, rank 1 (", "of 3");
}

enum { CROWDS = 4 };

/* From the start of rank 1 to the end of the job. Before it starts, n strangers have come to rank
 * 0, and others come until the job has ended. */
static double start_besieged(unsigned n, unsigned port)
{
    struct siege sieges[CROWDS];
    struct started started[2];
    struct command said[2];
    pthread_t threads[CROWDS];
    unsigned n_came = 0, n_refused = 0, n_over = 0;
    const int n_threads = n > 1 ? CROWDS : 1; /* one says that the port is open */
    start(&started[0], -1, 0, 2, port, WORDS(SECRET), BASE);
    for (int i = 0; i < n_threads; i++) {
        sieges[i] = (struct siege){
            .kind = n > 1 ? SIEGE_KINDS : SIEGE_LEAVES,
            .port = (uint16_t)(port + 1),
            .greeting = {.magic = DPB_GREETING_MAGIC, .dialler = 1, .purpose = 1 + (unsigned)i % 2},
            .n = n > 1 ? 0 : 1};
        assert_int_equal(pthread_create(&threads[i], NULL, siege_lay, &sieges[i]), 0);
    }
    for (; n_came < n && n_over < (unsigned)n_threads; usleep(200)) {
        n_came = n_over = 0;
        for (int i = 0; i < n_threads; i++) {
            n_came += __atomic_load_n(&sieges[i].n_came, __ATOMIC_ACQUIRE);
            n_over += __atomic_load_n(&sieges[i].over, __ATOMIC_ACQUIRE);
        }
    }
    start(&started[1], -1, 1, 2, port, WORDS(SECRET), BASE);
    for (int rank = 1; rank >= 0; rank--)
        command_finish(&started[rank], &said[rank], deadline_s);
    const double took_s = now_s() - started[1].began_s;
    n_came = 0;
    for (int i = 0; i < n_threads; i++) {
        __atomic_store_n(&sieges[i].stop, true, __ATOMIC_RELEASE);
        pthread_join(threads[i], NULL);
        n_came += sieges[i].n_came;
        n_refused += sieges[i].n_refused;
    }
    if (said[0].exit_code != 0 || said[1].exit_code != 0)
        fail_msg("%u strangers: exit %d, %d\n%s%s", n_came, said[0].exit_code, said[1].exit_code,
                 said[0].err, said[1].err);
    print_message("%u strangers: %.3f s\n", n_came, took_s);
    assert_in_range(n_came, n, UINT32_MAX);
    assert_int_equal(n_refused, n_came);
    assert_true(json_number_at(take_result(), "world.workers") == 2);
    return took_s;
}

/* None of them gets in, and the job starts as soon as without them, within a second. */
TEST(test_siege)
{
    const bool all = getenv("DPB_ALL_CELLS");
    const unsigned n_strangers = all ? 3000 : 200, n_turns = all ? 5 : 1, most_turns = 3 * n_turns;
    double alone_s = 0, besieged_s = 0;
    unsigned n = 0;
    do {
        alone_s += start_besieged(1, port_of(12));
        besieged_s += start_besieged(n_strangers, port_of(14));
        n++;
    } while (n < n_turns || (besieged_s - alone_s > n && n < most_turns));
    print_message("%.3f s alone, %.3f s besieged\n", alone_s / n, besieged_s / n);
    assert_true(besieged_s - alone_s <= n);
}

TEST(test_port_taken)
{
    struct started started;
    struct command command;
    struct sockaddr_in any = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port_of(5))};
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(fd, (struct sockaddr *)&any, sizeof any), 0);
    assert_int_equal(listen(fd, 1), 0);
    start(&started, -1, 0, 2, port_of(4), WORDS(SECRET), BASE);
    command_finish(&started, &command, deadline_s);
    close(fd);
    assert_int_equal(command.exit_code, 2);
    EXPECT_WORDS("port taken", command.err, "rank 0 cannot listen on port",
                 "take another run.port");
}

/* An indexed Job of Kubernetes: the configuration has the size. */
TEST(test_indexed)
{
    struct started started[2];
    struct command said[2];
    char of_port[32];
    snprintf(of_port, sizeof of_port, "run.port=%u", port_of(6));
    for (int rank = 0; rank < 2; rank++)
        dpbench_start(&started[rank],
                      WORDS(rank == 0 ? "JOB_COMPLETION_INDEX=0" : "JOB_COMPLETION_INDEX=1",
                            "MASTER_ADDR=localhost"),
                      BASE "run.workers=2 run.open=yes %s", of_port);
    for (int rank = 0; rank < 2; rank++)
        command_finish(&started[rank], &said[rank], deadline_s);
    if (said[0].exit_code != 0 || said[1].exit_code != 0)
        fail_msg("exit %d, %d\n%s", said[0].exit_code, said[1].exit_code, said[0].err);
    assert_true(json_number_at(take_result(), "world.workers") == 2);
}

/* ---- one process a machine ----------------------------------------------------------------- */

#define BY_MACHINE BASE "run.launch=environment "

/* As a job of the local launcher is. */
TEST(test_parts)
{
    static const char *const settings[] = {"run.workers=4 comm.name=shm",
                                           "run.workers=2 run.servers=3 comm.name=ps_cpu"};
    const char *const *const local[2] = {WORDS("LOCAL_WORLD_SIZE=2"), WORDS("LOCAL_WORLD_SIZE=2")};
    for (int i = 0; i < 2; i++) {
        struct command said[2], alone;
        char line[256];
        snprintf(line, sizeof line, BY_MACHINE "%s", settings[i]);
        run_two(said, nowhere, port_of(8), local, line);
        if (said[0].exit_code != 0 || said[1].exit_code != 0)
            fail_msg("exit %d, %d\n%s%s", said[0].exit_code, said[1].exit_code, said[0].err,
                     said[1].err);
        assert_string_equal(said[1].out, "");
        const json_t *result = take_result();
        assert_string_equal(json_text_at(result, "world.launcher"), "environment");
        assert_true(json_number_at(result, "world.machines") == 1);
        assert_string_equal(json_text_at(result, "verification.replicas"), "pass");
        assert_int_equal(json_array_size(json_at(result, "ranks")), i == 0 ? 4 : 5);
        dpbench_ends(&alone, deadline_s, 0, BASE "%s", settings[i]);
        assert_true(json_equal(json_at(result, "loss"), json_at(take_result(), "loss")));
    }
}

/* A rank of the second process fails: the first says so, and all end. */
TEST(test_part_fails)
{
    struct command said[2];
    const char *const *const local[2] = {WORDS("LOCAL_WORLD_SIZE=2"), WORDS("LOCAL_WORLD_SIZE=2")};
    run_two(said, nowhere, port_of(9), local,
            BY_MACHINE "run.workers=4 device.name=fault comm.name=shm device.fault=kill "
                       "device.rank=3 device.hook=backward device.call=4");
    assert_int_equal(said[0].exit_code, 1);
    assert_int_equal(said[1].exit_code, 1);
    EXPECT_WORDS("a rank is killed", said[0].err, "rank 3 (", "was killed by signal 9",
                 "in phase 'backward'");
    assert_string_equal(said[1].err, "");
    unlink("result.json");
}

/* Ranks of one machine meet on a unix socket, again too: another program may have the port. */
TEST(test_restart_is_local)
{
    struct command said[2];
    const char *const *const local[2] = {WORDS("LOCAL_WORLD_SIZE=2"), WORDS("LOCAL_WORLD_SIZE=2")};
    const struct sockaddr_in loopback = {.sin_family = AF_INET,
                                         .sin_port = htons((uint16_t)port_of(11)),
                                         .sin_addr = {htonl(INADDR_LOOPBACK)}};
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    assert_int_equal(bind(fd, (const struct sockaddr *)&loopback, sizeof loopback), 0);
    assert_int_equal(listen(fd, 8), 0);
    run_two(said, nowhere, port_of(10), local,
            BASE "device.name=fault comm.name=shm device.fault=kill device.rank=1 "
                 "device.hook=backward device.call=8 run.restart=1 checkpoint.every=3 "
                 "checkpoint.place=peer");
    assert_int_equal(accept(fd, NULL, NULL), -1);
    close(fd);
    assert_int_equal(said[0].exit_code, 0);
    assert_int_equal(said[1].exit_code, 0);
    assert_true(json_number_at(take_result(), "restarts.0.step") == 6);
}

TEST(test_parts_refused)
{
    static const struct {
        const char *variables[5], *settings, *words[3];
    } rows[] = {
        {{"RANK=0", "WORLD_SIZE=2", "MASTER_ADDR=a"},
         "run.workers=3",
         {"run.workers = 3 do not divide by the 2 machines", "take a multiple of 2"}},
        {{"JOB_COMPLETION_INDEX=0", "MASTER_ADDR=a"},
         "run.workers=2",
         {"needs WORLD_SIZE, the number of machines"}},
        {{"RANK=2", "WORLD_SIZE=2", "MASTER_ADDR=a"}, "", {"RANK = 2, and the job has 2 machines"}},
        {{"PMIX_RANK=0", "PMIX_NAMESPACE=a"}, "", {"numbers its processes by PMIx"}},
        {{NULL}, "", {"no variable says which machine this is: set RANK"}},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct started started;
        struct command command;
        dpbench_start(&started, rows[i].variables, BY_MACHINE "%s", rows[i].settings);
        command_finish(&started, &command, deadline_s);
        if (command.exit_code != 2)
            fail_msg("row %zu: exit %d\n%s", i, command.exit_code, command.err);
        expect_words("refused", command.err, rows[i].words);
    }
}

/* Two hosts of one kernel, which have one name: two machines, of a rank each, and of two. The last
 * test: from here on the program sees no other network. */
TEST(test_machines)
{
    static const char *const settings[] = {
        "", "run.launch=environment run.workers=4",
        "run.launch=environment run.workers=4 device.name=fault device.fault=kill device.rank=3 "
        "device.hook=backward device.call=8 run.restart=1 checkpoint.every=3 "
        "checkpoint.place=peer"};
    const char *const words[] = {"run.workers = 1 and run.servers = 0 make 1 ranks",
                                 "has started 2", NULL};
    struct command few[2];
    const char *const *const secret[2] = {WORDS(SECRET), WORDS(SECRET)};
    if (network_possible())
        network_up(&network, 2, NULL);
    network_or_skip(&network);
    for (int i = 0; i < 3; i++) {
        struct command said[2];
        char line[512];
        snprintf(line, sizeof line, BASE "comm.name=ring_tcp comm.interface=10.9.0.0/24 %s",
                 settings[i]);
        run_two(said, (const int[2]){0, 1}, port_of(7), secret, line);
        if (said[0].exit_code != 0 || said[1].exit_code != 0)
            fail_msg("exit %d, %d\n%s%s", said[0].exit_code, said[1].exit_code, said[0].err,
                     said[1].err);
        const json_t *result = take_result();
        assert_true(json_number_at(result, "world.machines") == 2);
        assert_string_equal(json_text_at(result, "config.comm.hosts.origin"), "launcher");
        assert_string_equal(json_text_at(result, "config.comm.hosts.value"),
                            i == 0 ? "2x1" : "2x2");
        assert_string_equal(json_text_at(result, "verification.replicas"), "pass");
        assert_true(json_number_at(result, "ranks.0.tcp.0.segments") > 0);
        if (i == 2)
            assert_true(json_number_at(result, "restarts.0.step") == 6);
    }
    /* The file is at odds with the launcher, not with the machines that follow from it. */
    run_two(few, (const int[2]){0, 1}, port_of(7), secret,
            BASE "comm.name=ring_tcp comm.interface=10.9.0.0/24 run.workers=1");
    assert_int_equal(few[0].exit_code, 2);
    expect_words("too few workers", few[0].err, words);
}

static int setup(void **state)
{
    const int code = sandbox_setup(state);
    sandbox_write("job.ini", "[run]\nbatch = 2\nsteps = 8\nwarmup_steps = 1\nsteady_limit_s = 0\n"
                             "timeout_s = 20\n[model]\nname = tiny\n[data]\nsamples = 64\n"
                             "[device]\nname = reference\nthreads = 1\n");
    return code;
}

static int teardown(void **state)
{
    network_down(&network);
    return sandbox_teardown(state);
}

TEST_MAIN(setup, teardown)
