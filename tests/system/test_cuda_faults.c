/*
 * test_cuda_faults.c - a worker that computes on a GPU is killed: the job ends at once, names it,
 * and leaves nothing behind; or it is stopped, and the others wait no longer than they may. On a CUDA for tests (tests/cuda), or with DPB_TEST_DEVICE=cuda on a
 * GPU that two workers share.
 */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "lib/faults.h"
#include "lib/sandbox.h"
#include "lib/stand_in.h"
#include "lib/traces.h"

#define CUDA "device.name=cuda run.precision=fp32 device.ids=0,0 device.tuning=no "

static const double most_s = 10.0; /* of which the driver takes some to clear up behind a process */

static void test_killed(void **state)
{
    static const struct {
        const char *arguments;
        size_t n_ranks;
        unsigned delay_us;
    } rows[] = {{CUDA "comm.name=shm", 2, 0},
                {CUDA "comm.name=shm", 2, 1500000},
                {CUDA "comm.name=independent", 2, 1200000},
                {CUDA "comm.name=ps_cpu run.servers=1", 3, 1000000},
                {CUDA "comm.name=ring_tcp", 2, 700000},
                {CUDA "comm.name=ps_gpu", 2, 1200000},
                {CUDA "comm.name=replicated", 2, 900000}};
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct started started;
        struct command command;
        struct traces before;
        pid_t pids[3];
        char victim[64];
        traces_take(&before, ".");
        faults_start_long(&started, rows[i].arguments);
        faults_await_ranks(&started, pids, rows[i].n_ranks);
        usleep(rows[i].delay_us);
        kill(pids[1], SIGKILL);
        double killed_s = now_s();
        command_finish(&started, &command, killed_s - started.began_s + 2 * most_s);
        if (command.exit_code != 1 || now_s() - killed_s > most_s)
            fail_msg("%s: exit %d after %.1f s\n%s", rows[i].arguments, command.exit_code,
                     now_s() - killed_s, command.err);
        snprintf(victim, sizeof victim, ", pid %d) ", (int)pids[1]);
        faults_expect_words(rows[i].arguments, faults_only_error(rows[i].arguments, &command),
                            (const char *const[]){"rank ", victim, "signal 9", NULL});
        traces_expect_none(&before, rows[i].arguments, 1.0);
        traces_free(&before);
        command_free(&command);
    }
}

/* Who waits for a stopped worker looks at flags and events, and is waiting all the same. */
static void test_stopped(void **state)
{
    static const char *const rows[] = {"comm.name=ps_gpu", "comm.name=replicated"};
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct started started;
        struct command command;
        char arguments[256];
        pid_t pids[2];
        snprintf(arguments, sizeof arguments, CUDA "%s run.timeout_s=1.5 run.stall_warning_s=0.5",
                 rows[i]);
        faults_start_long(&started, arguments);
        faults_await_ranks(&started, pids, 2);
        usleep(1500000);
        kill(pids[1], SIGSTOP);
        double stopped_s = now_s();
        command_finish(&started, &command, stopped_s - started.began_s + 3 * most_s);
        if (command.exit_code != 1 || now_s() - stopped_s > 1.5 + most_s)
            fail_msg("%s: exit %d after %.1f s\n%s", arguments, command.exit_code,
                     now_s() - stopped_s, command.err);
        faults_expect_words(arguments, command.err,
                            (const char *const[]){"no progress for ", NULL});
        faults_expect_words(arguments, faults_only_error(arguments, &command),
                            (const char *const[]){"rank 1", " is late", NULL});
        command_free(&command);
    }
}

static int setup(void **state)
{
    int result = faults_setup(state);
    use_stand_in(true);
    return result;
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_killed),
                                       cmocka_unit_test(test_stopped)};
    return cmocka_run_group_tests(tests, setup, sandbox_teardown);
}
