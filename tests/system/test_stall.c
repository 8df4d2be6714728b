/* needs: threads waits */
/*
 * test_stall.c - a job without progress says who is late and where all are; one that only takes
 * long says nothing; a job that is suspended goes on; a machine that does other things meanwhile
 * stands beside the rate.
 */
#include <fcntl.h>
#include <limits.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "lib/faults.h"
#include "lib/sandbox.h"
#include "lib/says.h"
#include "lib/test.h"
#include "lib/traces.h"
#include "machine/proc.h"

static const double deadline_s = 60.0;

/* The entry of that code in the result's warnings; NULL: none. */
static const json_t *warning_of(const struct command *command, const char *code)
{
    size_t i;
    const json_t *entry;
    json_array_foreach(json_at(command->json, "warnings"), i, entry)
    {
        if (strcmp(json_text_at(entry, "code"), code) == 0)
            return entry;
    }
    return NULL;
}

static size_t count_of(const char *text, const char *what)
{
    size_t n = 0;
    for (; (text = strstr(text, what)); text++)
        n++;
    return n;
}

#define STUCK                                                                                    \
    FAULTS_COMM "comm.fault=hang comm.hook=end comm.rank=1 comm.call=9 run.stall_warning_s=0.3 " \
                "run.timeout_s=1.2 "

static const char *const where[] = {"rank 0 (worker, pid ",
                                    "phase 'wait_peer' of step ",
                                    ", bucket 0, ",
                                    "for rank 1, since ",
                                    "rank 1 (worker, pid ",
                                    "phase 'exchange' of step 7, since ",
                                    NULL};

/* Whether this system says where a process of the own user sleeps. */
static bool tells_of_sleep(void)
{
    char function[DPB_PROC_FUNCTION_BYTES];
    bool told = false;
    const pid_t child = fork();
    assert_true(child >= 0);
    while (child == 0)
        pause();
    for (int i = 0; i < 100 && !told; i++) {
        usleep(1000);
        told = dpb_proc_sleeps_in("", child, function);
    }
    kill(child, SIGKILL);
    waitpid(child, NULL, 0);
    return told;
}

/* Once, though it lasts; and again, as it was, when the deadline passes. */
TEST(test_stall_is_said_once)
{
    struct command command;
    dpbench_ends(&command, deadline_s, 1, FAULTS_BASE STUCK);
    assert_int_equal(count_of(command.err, "warning: no progress for "), 1);
    const char *error = faults_only_error("stuck", &command);
    expect_words("the warning's picture", command.err, where);
    expect_words("the error's picture", error, where);
    EXPECT_WORDS("the error", error, "; rank 1 is late: phase 'exchange' of step 7");
    const json_t *warning = warning_of(&command, "stall");
    assert_non_null(warning);
    EXPECT_WORDS("the warning", json_text_at(warning, "text"), "no progress for 0.", "rank 1 (",
                 " is late: ", "phase 'exchange' of step 7",
                 tells_of_sleep() ? ", asleep in " : "");
    assert_null(strstr(json_text_at(warning, "text"), "since"));
}

/* All hang, soon after each other: they are counted, not listed. */
TEST(test_many_are_late)
{
    struct command command;
    dpbench_ends(&command, deadline_s, 1,
                 FAULTS_BASE FAULTS_COMM
                 "comm.fault=hang comm.hook=end comm.rank=-1 comm.call=9 run.stall_warning_s=1.5 "
                 "run.timeout_s=4 run.workers=12");
    assert_in_range(count_of(command.err, "warning: no progress for "), 1, 5);
    EXPECT_WORDS("the last warning", command.err, " is late: phase 'exchange' of step 7",
                 "; 11 others are late, too");
}

/* A strategy whose event never fires is ended by that sentence, with and without a core of its
 * own. */
TEST(test_forgotten_done)
{
    static const char *const cores[] = {"", "run.comm_cores=1"};
    struct command command;
    for (size_t i = 0; i < 2; i++) {
        dpbench_ends(&command, deadline_s, 1,
                     FAULTS_BASE FAULTS_COMM "comm.fault=forget comm.hook=end comm.rank=1 "
                                             "run.timeout_s=1.5 %s",
                     cores[i]);
        assert_true(command.seconds < 20);
        EXPECT_WORDS("forgotten", faults_only_error("forgotten", &command), "rank 1 (",
                     "comm 'fault' has not signalled the event "
                     "`done` of its `end` within 0.8 s");
    }
}

/* Whatever a strategy waits by, its rank says for whom; where it waits no more, it says so, too. */
TEST(test_late_in_any_wait)
{
    static const char *const rows[][2] = {
        {"comm.name=toy_reduce_exact device.name=fault device.fault=hang device.hook=forward "
         "device.rank=1 device.call=3",
         "; rank 1 is late: phase 'forward' of step 2"},
        {"comm.name=ps_async run.servers=1 device.name=fault device.fault=hang device.hook=forward "
         "device.rank=1 device.call=6",
         "phase 'evaluate' of step 5, since "},
        {FAULTS_COMM "comm.inner=local_sgd comm.fault=hang comm.hook=publish comm.rank=1 "
                     "comm.call=3",
         "; rank 1 is late: phase 'evaluate' of step 5"},
    };
    struct command command;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        dpbench_ends(&command, deadline_s, 1,
                     FAULTS_BASE "run.timeout_s=1 run.stall_warning_s=0 %s", rows[i][0]);
        const char *error = faults_only_error(rows[i][0], &command);
        EXPECT_WORDS(rows[i][0], error, rows[i][1]);
        if (strstr(error, ", for rank 0,")) /* a server that waits for any worker */
            fail_msg("%s: %s", rows[i][0], error);
    }
}

/* Behind a server: who is late is not the one who is waited for, but whom that one waits for. */
TEST(test_late_behind_a_server)
{
    struct command command;
    dpbench_ends(&command, deadline_s, 1,
                 FAULTS_BASE STUCK
                 "comm.inner=ps_cpu run.servers=1 run.timeout_s=1 run.stall_warning_s=0");
    EXPECT_WORDS("server", faults_only_error("server", &command),
                 "; rank 1 is late: phase 'exchange' of step 7", "rank 2 (server, pid ");
    assert_null(warning_of(&command, "stall")); /* switched off */
}

/* ---- others on the machine ------------------------------------------------------------------ */

static void first_core(cpu_set_t *first)
{
    cpu_set_t mine;
    sched_getaffinity(0, sizeof mine, &mine);
    CPU_ZERO(first);
    for (int cpu = 0; cpu < CPU_SETSIZE && CPU_COUNT(first) == 0; cpu++)
        if (CPU_ISSET(cpu, &mine))
            CPU_SET(cpu, first);
}

/* A process that computes on the first core that there is: the one of a job that needs one. */
static pid_t start_other(void)
{
    pid_t pid = fork();
    cpu_set_t first;
    if (pid != 0)
        return pid;
    first_core(&first);
    sched_setaffinity(0, sizeof first, &first);
    alarm((unsigned)deadline_s);
    for (;;)
        ;
}

static void end_other(pid_t pid)
{
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
}

/* It computes for two seconds in a hook, four times as long as the warning's time; for longer than
 * all deadlines another process has its core, and it is ready to run but does not. */
TEST(test_work_is_no_stall)
{
    static const struct sched_param none;
    struct started started;
    struct command command;
    cpu_set_t first;
    pid_t worker;
    faults_start_long(&started, "comm.name=independent device.name=fault device.fault=busy "
                                "device.hook=forward run.workers=1 run.stall_warning_s=0.5 "
                                "run.timeout_s=0.5 run.seconds=0.1");
    faults_await_ranks(&started, &worker, 1);
    usleep(500000);
    pid_t other = start_other();
    first_core(&first);
    assert_int_equal(sched_setaffinity(worker, sizeof first, &first), 0);
    assert_int_equal(sched_setscheduler(worker, SCHED_IDLE, &none), 0);
    usleep(3300000);
    end_other(other);
    assert_int_equal(sched_setscheduler(worker, SCHED_OTHER, &none), 0);
    command_finish(&started, &command, deadline_s);
    if (command.exit_code != 0)
        fail_msg("exit %d\n%s", command.exit_code, command.err);
    assert_null(warning_of(&command, "stall"));
}

/* An evaluation by rank 0 alone may take longer than run.timeout_s, and the others wait for it. */
TEST(test_evaluation_is_no_stall)
{
    struct command command;
    dpbench_ends(&command, deadline_s, 0,
                 FAULTS_BASE "comm.name=independent model.name=timed data.name=timed "
                             "device.name=timed device.evaluate=500 data.test_samples=8 "
                             "eval.every=0 eval.final=yes run.steps=2 run.timeout_s=1");
    assert_int_equal(json_number_at(command.json, "eval.0.samples"), 8);
}

/* ---- suspended ----------------------------------------------------------------------------- */

static char state_of(pid_t pid)
{
    char path[64], line[512] = "";
    snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
    FILE *file = fopen(path, "re");
    const char *name_end = file && fgets(line, sizeof line, file) ? strrchr(line, ')') : NULL;
    if (file)
        fclose(file);
    return name_end ? name_end[2] : '\0';
}

static void await_state(pid_t pid, char wanted)
{
    for (double until_s = now_s() + 20; state_of(pid) != wanted; usleep(2000))
        if (now_s() > until_s)
            fail_msg("process %d is in state '%c', not '%c'", (int)pid, state_of(pid), wanted);
}

/* Each worker marks the step in which it did not run for so long: the rate allows no conclusion. */
static void expect_suspended(const struct command *command, size_t n_workers, double least_s)
{
    const json_t *steps = json_at(command->json, "timing.suspended");
    assert_true(json_array_size(steps) >= n_workers);
    for (size_t i = 0; i < json_array_size(steps); i++)
        assert_true(json_number_at(json_array_get(steps, i), "seconds") >= least_s);
    assert_true(json_number_at(command->json, "load.suspended_s") >= least_s);
    assert_true(json_is_true(json_at(command->json, "load.disturbed")));
    assert_non_null(warning_of(command, "suspended"));
}

/* ^Z, for longer than any deadline of the job; then fg. */
TEST(test_suspended)
{
    struct started started;
    struct command command;
    struct traces before;
    pid_t pids[3];
    traces_take(&before, ".");
    faults_start_long(&started, "comm.name=ps_cpu run.servers=1 run.seconds=2 run.timeout_s=1 "
                                "run.stall_warning_s=0.5 eval.every=0");
    faults_await_steps(&started, pids, 3);
    usleep(100000); /* warm-up is over */
    kill(started.pid, SIGTSTP);
    await_state(started.pid, 'T');
    for (int i = 0; i < 3; i++)
        await_state(pids[i], 'T');
    usleep(1700000);
    kill(started.pid, SIGCONT);
    command_finish(&started, &command, deadline_s);
    if (command.exit_code != 0)
        fail_msg("exit %d\n%s", command.exit_code, command.err);
    assert_non_null(warning_of(&command, "suspended"));
    assert_null(warning_of(&command, "stall"));
    traces_expect_none(&before, "suspended", 0.5);
    expect_suspended(&command, 2, 1.2);
}

/* ---- a monotonic clock that jumps ------------------------------------------------------------ */

static void jump(struct command *command, int64_t by_ns)
{
    struct started started;
    pid_t pids[2];
    char path[PATH_MAX];
    const int fd = open("clock", O_RDWR | O_CREAT | O_TRUNC, 0644);
    assert_true(fd >= 0 && ftruncate(fd, sizeof by_ns) == 0 && realpath("clock", path));
    setenv("DPB_CLOCK_FILE", path, 1);
    sandbox_preload("jump_monotonic");
    faults_start(&started, "comm.name=shm run.steps=400 run.delay=constant(1ms) eval.every=0 "
                           "run.timeout_s=10");
    sandbox_forget_preload(NULL);
    faults_await_steps(&started, pids, 2);
    usleep(100000); /* warm-up is over */
    assert_int_equal(pwrite(fd, &by_ns, sizeof by_ns, 0), sizeof by_ns);
    close(fd);
    command_finish(&started, command, deadline_s);
}

/* As after a machine has slept. */
TEST(test_clock_jumps_ahead)
{
    struct command command;
    jump(&command, INT64_C(40000000000));
    if (command.exit_code != 0)
        fail_msg("exit %d\n%s", command.exit_code, command.err);
    expect_suspended(&command, 2, 38);
}

TEST(test_clock_runs_backwards)
{
    struct command command;
    jump(&command, -INT64_C(100000000000));
    assert_int_equal(command.exit_code, 1);
    EXPECT_WORDS("backwards", faults_only_error("backwards", &command),
                 "monotonic clock ran backwards by ");
}

/* One that hangs anyway: the time for which it was suspended is no stall. */
TEST(test_suspension_is_no_stall)
{
    struct started started;
    struct command command;
    pid_t pids[2];
    faults_start_long(&started, FAULTS_COMM "comm.fault=hang comm.hook=bind run.timeout_s=20 "
                                            "run.stall_warning_s=1.5");
    faults_await_ranks(&started, pids, 2);
    usleep(300000);
    kill(started.pid, SIGTSTP);
    await_state(started.pid, 'T');
    usleep(1500000);
    kill(started.pid, SIGCONT);
    await_state(pids[0], 'S');
    usleep(300000); /* it looks four times a second */
    signal_process(started.pid, SIGINT);
    usleep(150000); /* a pair at once counts as one */
    signal_process(started.pid, SIGINT);
    command_finish(&started, &command, deadline_s);
    assert_int_equal(command.exit_code, 130);
    assert_non_null(warning_of(&command, "suspended"));
    assert_null(warning_of(&command, "stall"));
}

/* All processes of jobs stand still in a frozen control group, longer than run.timeout_s: no
 * deadline counts that time, whatever a strategy waits by. */
TEST(test_frozen)
{
    static const char freeze[] =
        "g=/sys/fs/cgroup/freezer/dpbench-test-$$ f=freezer.state on=FROZEN off=THAWED\n"
        "[ -d /sys/fs/cgroup/freezer ] || {\n"
        "    g=/sys/fs/cgroup/dpbench-test-$$ f=cgroup.freeze on=1 off=0\n"
        "}\n"
        "mkdir $g 2>/dev/null || exit 77\n"
        "trap 'echo $off >$g/$f' EXIT INT TERM\n"
        "for strategy in shm ps_cpu ring_tcp local_sgd; do\n"
        "    sh -c 'echo $$ >$0/cgroup.procs && exec $DPB_BUILD/dpbench -c base.ini $*' $g \\\n"
        "        run.seconds=4 'run.delay=constant(2ms)' eval.every=0 run.timeout_s=3 \\\n"
        "        comm.name=$strategy &\n"
        "    jobs=\"$jobs $!\"\n"
        "done\n"
        "sleep 2; echo $on >$g/$f; sleep 5\n"
        "cat $g/freezer.state $g/cgroup.events 2>/dev/null | grep -qE 'FROZEN|frozen 1' || "
        "thawed=75\n"
        "echo $off >$g/$f\n"
        "for job in $jobs; do wait $job || code=$?; done\n"
        "trap - EXIT INT TERM\n"
        "for i in 1 2 3 4 5 6 7 8 9; do rmdir $g 2>/dev/null && break; sleep 0.1; done\n"
        "exit ${thawed:-${code:-0}}\n";
    struct command command;
    command_run(&command, deadline_s, WORDS("/bin/sh", "-c", freeze), NULL);
    const int exit_code = command.exit_code;
    if (exit_code != 0 && exit_code != 77)
        fail_msg("exit %d\n%s", exit_code, command.err);
    if (exit_code == 77)
        skip();
}

/* Killed while it stands still: nothing of it is left. */
TEST(test_killed_while_suspended)
{
    struct started started;
    struct command command;
    struct traces before;
    pid_t pids[2];
    traces_take(&before, ".");
    faults_start_long(&started, "comm.name=shm");
    faults_await_ranks(&started, pids, 2);
    kill(started.pid, SIGTSTP);
    await_state(started.pid, 'T');
    kill(started.pid, SIGKILL);
    command_finish(&started, &command, deadline_s);
    assert_int_equal(command.signal_number, SIGKILL);
    traces_expect_none(&before, "killed while suspended", 2);
}

/* Each is stopped while it waits for the other: none of their deadlines passes, the launcher's
 * does. */
TEST(test_all_are_stopped)
{
    struct started started;
    struct command command;
    pid_t pids[2];
    faults_start_long(&started, "comm.name=shm run.timeout_s=2 run.stall_warning_s=0");
    faults_await_steps(&started, pids, 2);
    for (int i = 0; i < 2; i++) { /* [1] waits for [0], and then [0] for [1] */
        kill(pids[i], SIGSTOP);
        usleep(300000);
        kill(pids[1 - i], SIGSTOP);
        await_state(pids[1 - i], 'T');
        if (i == 0)
            kill(pids[0], SIGCONT);
        usleep(300000);
    }
    command_finish(&started, &command, deadline_s);
    assert_int_equal(command.exit_code, 1);
    EXPECT_WORDS("all stopped", faults_only_error("all stopped", &command), "stuck: for ",
                 "is stopped (SIGSTOP)");
}

/* A reader that stops reading what is printed does not keep the launcher from its job. */
TEST(test_full_stderr)
{
    char program[4200];
    int ends[2], status;
    snprintf(program, sizeof program, "%s/dpbench", build_directory());
    assert_int_equal(pipe(ends), 0);
    static char filling[4096];
    fcntl(ends[1], F_SETFL, O_NONBLOCK);
    while (write(ends[1], filling, sizeof filling) > 0)
        ;
    fcntl(ends[1], F_SETFL, 0);
    pid_t pid = fork();
    if (pid == 0) {
        dup2(ends[1], STDERR_FILENO);
        execl(program, program, "-c", "base.ini", "run.seconds=600", "comm.name=fault",
              "device.name=reference", "comm.fault=hang", "comm.hook=end", "comm.rank=1",
              "comm.call=9", "run.stall_warning_s=0.2", "run.timeout_s=600", (char *)NULL);
        _exit(127);
    }
    pid_t ranks[2];
    faults_await_ranks(&(struct started){.pid = pid}, ranks, 2);
    usleep(1500000); /* it has warned by now */
    signal_process(pid, SIGINT);
    usleep(150000); /* a pair at once counts as one */
    signal_process(pid, SIGINT);
    double until_s = now_s() + 20;
    pid_t ended;
    while ((ended = waitpid(pid, &status, WNOHANG)) == 0 && now_s() < until_s)
        usleep(10000);
    if (ended == 0)
        kill(pid, SIGKILL);
    close(ends[0]);
    close(ends[1]);
    assert_int_equal(ended, pid);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 130);
}

/* ---- numbers ------------------------------------------------------------------------------- */

TEST(test_busy_machine)
{
    struct command command;
    pid_t other = start_other();
    dpbench(&command, deadline_s,
            FAULTS_BASE "comm.name=shm run.seconds=1 run.workers=1 device.threads=1 eval.every=0");
    end_other(other);
    assert_int_equal(command.exit_code, 0);
    assert_true(json_number_at(command.json, "load.seconds") > 0.9);
    assert_true(json_number_at(command.json, "load.cpus") == 1);
    /* Nobody can have more than there is; a tick is 10 ms. */
    double own = json_number_at(command.json, "load.own_share");
    double others = json_number_at(command.json, "load.others_share");
    assert_true(own > 0);
    assert_true(others > 0.1);
    assert_true(own + others < 1.15);
    assert_non_null(warning_of(&command, "busy_machine"));
}

TEST_MAIN(faults_setup, sandbox_teardown)
