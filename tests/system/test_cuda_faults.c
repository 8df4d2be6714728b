/* needs: cuda stand-in */
/*
 * test_cuda_faults.c - a worker that computes on a GPU is killed: the job ends at once, names it,
 * and leaves nothing behind; or it is stopped, and the others wait no longer than they may. On a
 * CUDA for tests (tests/cuda), or with DPB_TEST_DEVICE=cuda on a GPU that two workers share.
 */
#include <stdio.h>
#include <stdlib.h>

#include "lib/faults.h"
#include "lib/sandbox.h"
#include "lib/says.h"
#include "lib/stand_in.h"
#include "lib/test.h"

#define CUDA "device.name=cuda run.precision=fp32 device.ids=0,0 device.tuning=no "

static const double most_s = 10.0; /* of which the driver takes some to clear up behind a process */

TEST(test_killed)
{
    static const struct {
        const char *arguments;
        size_t n_ranks;
        bool in_training;
    } rows[] = {{CUDA "comm.name=shm", 2, false},
                {CUDA "comm.name=shm", 2, true},
                {CUDA "comm.name=independent", 2, true},
                {CUDA "comm.name=ps_cpu run.servers=1", 3, true},
                {CUDA "comm.name=ring_tcp", 2, true},
                {CUDA "comm.name=ps_gpu", 2, true},
                {CUDA "comm.name=replicated", 2, true},
                {CUDA "comm.name=hierarchical comm.inside=nccl comm.host_ids=rank comm.hosts=2+2 "
                      "comm.interface=lo run.workers=4",
                 4, true}};
    const size_t n_rows = sizeof rows / sizeof *rows - !have_stand_in("comm_nccl");
    for (size_t i = 0; i < n_rows; i++)
        faults_check_killed(rows[i].arguments, rows[i].n_ranks, rows[i].in_training, most_s);
}

/* Who waits for a stopped worker looks at flags and events, and is waiting all the same. */
TEST(test_stopped)
{
    static const char *const rows[] = {"comm.inner=ps_gpu", "comm.inner=replicated"};
    static const double deadline_s = 60.0;
    /* Within it a worker waits for the other to load cuDNN, too, which takes either its own
     * time. */
    const double timeout_s = on_gpu() ? 10.0 : 1.5;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct command command;
        dpbench_ends(&command, deadline_s, 1,
                     FAULTS_BASE CUDA
                     "comm.name=fault %s comm.fault=stop comm.hook=end comm.rank=1 "
                     "comm.call=9 run.timeout_s=%g run.stall_warning_s=0.5",
                     rows[i], timeout_s);
        EXPECT_WORDS(rows[i], command.err, "no progress for ");
        EXPECT_WORDS(rows[i], faults_only_error(rows[i], &command), "gradients of the peer",
                     "; rank 1 is late: phase ");
        command_free(&command);
    }
}

/* With the strategies of tests/plugins, too. */
static int setup(void **state)
{
    char path[1024];
    int result = faults_setup(state);
    use_stand_in(true);
    const char *stand_in = getenv("DPBENCH_PLUGIN_PATH");
    snprintf(path, sizeof path, "%s/tests/plugins%s%s", build_directory(), stand_in ? ":" : "",
             stand_in ? stand_in : "");
    setenv("DPBENCH_PLUGIN_PATH", path, 1);
    return result;
}

TEST_MAIN(setup, sandbox_teardown)
