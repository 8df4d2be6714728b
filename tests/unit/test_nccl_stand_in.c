/* needs: nccl stand-in */
/*
 * test_nccl_stand_in.c - the NCCL for tests (tests/cuda/nccl.cc) by itself: what it sums, in what
 * order, what it refuses, and what of it is left by an error and by an abort. Every rank is a
 * process.
 */
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <nccl.h>

#include "lib/test.h"

enum { RANKS = 3, COUNT = 1001, LONGEST_S = 20 };

/* Shared by the ranks of a test. */
struct common {
    ncclUniqueId id;
    int ready;
    float sums[RANKS][COUNT];
};

struct rank {
    int number;
    struct common *common;
    ncclComm_t comm;
    cudaStream_t stream;
    float *data;
};

/* What a rank does; 0: as it should be, else the line that it is not. */
typedef int body(struct rank *rank);

#define EXPECT(condition)    \
    do {                     \
        if (!(condition))    \
            return __LINE__; \
    } while (0)

static ncclResult_t finish(ncclComm_t comm)
{
    ncclResult_t state = ncclInProgress;
    while (state == ncclInProgress && ncclCommGetAsyncError(comm, &state) == ncclSuccess)
        usleep(100);
    return state;
}

static ncclResult_t join(struct rank *rank, int as, int n)
{
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
    ncclResult_t code = ncclCommInitRankConfig(&rank->comm, n, rank->common->id, as, &config);
    return code == ncclInProgress ? finish(rank->comm) : code;
}

/* Rank r begins with r + 1 in element 0, and every further element is one more. */
static int prepare(struct rank *rank)
{
    EXPECT(cudaStreamCreateWithFlags(&rank->stream, cudaStreamNonBlocking) == cudaSuccess);
    EXPECT(cudaMalloc((void **)&rank->data, COUNT * sizeof *rank->data) == cudaSuccess);
    for (int i = 0; i < COUNT; i++)
        rank->data[i] = (float)(rank->number + 1 + i);
    return 0;
}

static int become(body *of, int number, struct common *common)
{
    struct rank rank = {.number = number, .common = common};
    char host[16];
    snprintf(host, sizeof host, "host%d", number);
    setenv("NCCL_HOSTID", host, 1);
    alarm(LONGEST_S);
    if (number == 0) {
        if (ncclGetUniqueId(&common->id) != ncclSuccess)
            return __LINE__;
        __atomic_store_n(&common->ready, 1, __ATOMIC_RELEASE);
    }
    while (!__atomic_load_n(&common->ready, __ATOMIC_ACQUIRE))
        usleep(100);
    int line = of(&rank);
    if (number == 0) { /* the file of the ranks is this process's */
        while (__atomic_load_n(&common->ready, __ATOMIC_ACQUIRE) < RANKS)
            usleep(100);
    } else {
        __atomic_fetch_add(&common->ready, 1, __ATOMIC_ACQ_REL);
    }
    return line;
}

static void run(body *of, struct common **shared)
{
    struct common *common =
        mmap(NULL, sizeof *common, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    pid_t ranks[RANKS];
    assert_true(common != MAP_FAILED);
    for (int r = 0; r < RANKS; r++) {
        ranks[r] = fork();
        assert_true(ranks[r] >= 0);
        if (ranks[r] == 0) {
            int line = become(of, r, common);
            if (line != 0)
                fprintf(stderr, "rank %d: not as expected in line %d\n", r, line);
            _exit(line != 0);
        }
    }
    int bad = 0;
    for (int r = 0; r < RANKS; r++) {
        int status;
        assert_int_equal(waitpid(ranks[r], &status, 0), ranks[r]);
        bad += status != 0;
    }
    assert_int_equal(bad, 0);
    if (shared)
        *shared = common;
    else
        munmap(common, sizeof *common);
}

/* ---- sums ---------------------------------------------------------------------------------- */

/* Two in a row, so that the second has to wait for the first, and an event behind them. */
static int sum_twice(struct rank *rank)
{
    cudaEvent_t event;
    EXPECT(prepare(rank) == 0);
    EXPECT(join(rank, rank->number, RANKS) == ncclSuccess);
    EXPECT(cudaEventCreateWithFlags(&event, cudaEventDisableTiming) == cudaSuccess);
    for (int time = 0; time < 2; time++) {
        ncclResult_t code = ncclAllReduce(rank->data, rank->data, COUNT, ncclFloat32, ncclSum,
                                          rank->comm, rank->stream);
        EXPECT(code == ncclInProgress);
        EXPECT(finish(rank->comm) == ncclSuccess);
    }
    usleep(rank->number == 1 ? 20000 : 0);
    EXPECT(cudaEventRecord(event, rank->stream) == cudaSuccess);
    EXPECT(cudaEventSynchronize(event) == cudaSuccess);
    memcpy(rank->common->sums[rank->number], rank->data, sizeof rank->common->sums[0]);
    EXPECT(ncclCommFinalize(rank->comm) == ncclInProgress);
    EXPECT(finish(rank->comm) == ncclSuccess);
    EXPECT(ncclCommDestroy(rank->comm) == ncclSuccess);
    return 0;
}

TEST(test_sums)
{
    struct common *common;
    run(sum_twice, &common);
    for (int r = 0; r < RANKS; r++)
        for (int i = 0; i < COUNT; i++)
            assert_true(common->sums[r][i] == RANKS * (float)(1 + 2 + 3 + 3 * i));
    munmap(common, sizeof *common);
}

/* 1e8 + 1 - 1e8 depends on where one begins: the same bits on all ranks all the same, and not those
 * of the ranks' order everywhere. */
static int sum_rounded(struct rank *rank)
{
    static const float parts[RANKS] = {1e8f, 1.0f, -1e8f};
    EXPECT(prepare(rank) == 0);
    for (int i = 0; i < COUNT; i++)
        rank->data[i] = parts[rank->number];
    EXPECT(join(rank, rank->number, RANKS) == ncclSuccess);
    EXPECT(ncclAllReduce(rank->data, rank->data, COUNT, ncclFloat32, ncclSum, rank->comm,
                         rank->stream) == ncclInProgress);
    EXPECT(finish(rank->comm) == ncclSuccess);
    EXPECT(cudaStreamSynchronize(rank->stream) == cudaSuccess);
    memcpy(rank->common->sums[rank->number], rank->data, sizeof rank->common->sums[0]);
    return 0;
}

TEST(test_same_bits)
{
    struct common *common;
    int otherwise = 0;
    run(sum_rounded, &common);
    for (int r = 1; r < RANKS; r++)
        assert_memory_equal(common->sums[0], common->sums[r], sizeof common->sums[0]);
    for (int i = 0; i < COUNT; i++)
        otherwise += common->sums[0][i] != 0.0f;
    assert_in_range(otherwise, 1, COUNT - 1);
    munmap(common, sizeof *common);
}

/* ---- what is refused ------------------------------------------------------------------------- */

/* The work is in the stream when the communicator says so: an event that was recorded before is not
 * behind it. And no second call before that. */
static int call_too_early(struct rank *rank)
{
    EXPECT(prepare(rank) == 0);
    EXPECT(join(rank, rank->number, RANKS) == ncclSuccess);
    EXPECT(ncclAllReduce(rank->data, rank->data, COUNT, ncclFloat32, ncclSum, rank->comm,
                         rank->stream) == ncclInProgress);
    EXPECT(cudaStreamSynchronize(rank->stream) == cudaSuccess);
    EXPECT(rank->data[0] == (float)(rank->number + 1));
    EXPECT(ncclAllReduce(rank->data, rank->data, COUNT, ncclFloat32, ncclSum, rank->comm,
                         rank->stream) == ncclInvalidArgument);
    EXPECT(ncclCommAbort(rank->comm) == ncclSuccess);
    return 0;
}

/* Never done, until it is aborted; and then nothing that could be taken for a sum. */
static int disagree(struct rank *rank)
{
    size_t count = rank->number == 1 ? COUNT - 1 : COUNT;
    ncclResult_t state;
    EXPECT(prepare(rank) == 0);
    EXPECT(join(rank, rank->number, RANKS) == ncclSuccess);
    EXPECT(ncclAllReduce(rank->data, rank->data, count, ncclFloat32, ncclSum, rank->comm,
                         rank->stream) == ncclInProgress);
    EXPECT(finish(rank->comm) == ncclSuccess);
    do {
        EXPECT(cudaStreamQuery(rank->stream) == cudaErrorNotReady);
        EXPECT(ncclCommGetAsyncError(rank->comm, &state) == ncclSuccess);
    } while (state == ncclSuccess);
    EXPECT(state == ncclInvalidUsage);
    EXPECT(strstr(ncclGetLastError(rank->comm), "1000"));
    EXPECT(ncclCommAbort(rank->comm) == ncclSuccess);
    EXPECT(cudaStreamSynchronize(rank->stream) == cudaSuccess);
    EXPECT(rank->data[0] != rank->data[0]);
    return 0;
}

/* One rank's error leaves the others waiting; an abort ends it. */
static int fail_behind(struct rank *rank)
{
    ncclResult_t state = ncclSuccess;
    EXPECT(prepare(rank) == 0);
    EXPECT(join(rank, rank->number, RANKS) == ncclSuccess);
    for (int time = 0; time < 2; time++) {
        EXPECT(ncclAllReduce(rank->data, rank->data, COUNT, ncclFloat32, ncclSum, rank->comm,
                             rank->stream) == ncclInProgress);
        EXPECT(finish(rank->comm) == ncclSuccess);
    }
    for (int looks = 0; looks < 2000 && state == ncclSuccess; looks++) {
        cudaStreamQuery(rank->stream);
        EXPECT(ncclCommGetAsyncError(rank->comm, &state) == ncclSuccess);
        usleep(100);
    }
    EXPECT(state == (rank->number == 2 ? ncclSystemError : ncclSuccess));
    EXPECT(cudaStreamQuery(rank->stream) == cudaErrorNotReady);
    EXPECT(ncclCommAbort(rank->comm) == ncclSuccess);
    EXPECT(cudaStreamSynchronize(rank->stream) == cudaSuccess);
    return 0;
}

static int share_a_gpu(struct rank *rank)
{
    unsetenv("NCCL_HOSTID");
    EXPECT(cudaSetDevice(rank->number == 1 ? 1 : 0) == cudaSuccess);
    EXPECT(join(rank, rank->number, RANKS) == (rank->number == 1 ? ncclSuccess : ncclInvalidUsage));
    EXPECT(rank->number == 1 || strstr(ncclGetLastError(rank->comm), "Duplicate GPU detected"));
    return 0;
}

static int come_as_others(struct rank *rank)
{
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
    EXPECT(join(rank, RANKS, RANKS) == ncclInvalidArgument);
    config.minCTAs = 2; /* and no greatest */
    EXPECT(ncclCommInitRankConfig(&rank->comm, RANKS, rank->common->id, rank->number, &config) ==
           ncclInvalidArgument);
    config.minCTAs = NCCL_CONFIG_UNDEF_INT;
    EXPECT(ncclCommInitRankConfig(&rank->comm, RANKS, rank->common->id, rank->number, &config) ==
           ncclInProgress);
    EXPECT(ncclCommInitRankConfig(&rank->comm, RANKS, rank->common->id, rank->number, &config) ==
           ncclInvalidUsage);
    return 0;
}

/* ---- in graphs ------------------------------------------------------------------------------- */

/* Once without a capture: then it may be captured. */
static int call_once(struct rank *rank)
{
    EXPECT(prepare(rank) == 0);
    EXPECT(join(rank, rank->number, RANKS) == ncclSuccess);
    EXPECT(ncclAllReduce(rank->data, rank->data, COUNT, ncclFloat32, ncclSum, rank->comm,
                         rank->stream) == ncclInProgress);
    EXPECT(finish(rank->comm) == ncclSuccess);
    EXPECT(cudaStreamSynchronize(rank->stream) == cudaSuccess);
    return 0;
}

static int capture(struct rank *rank, cudaGraphExec_t *exec)
{
    cudaGraph_t graph = NULL;
    EXPECT(cudaStreamBeginCapture(rank->stream, cudaStreamCaptureModeThreadLocal) == cudaSuccess);
    EXPECT(ncclAllReduce(rank->data, rank->data, COUNT, ncclFloat32, ncclSum, rank->comm,
                         rank->stream) == ncclInProgress);
    EXPECT(finish(rank->comm) == ncclSuccess);
    EXPECT(cudaStreamEndCapture(rank->stream, &graph) == cudaSuccess);
    EXPECT(cudaGraphInstantiate(exec, graph, 0) == cudaSuccess);
    EXPECT(cudaGraphDestroy(graph) == cudaSuccess);
    return 0;
}

/* Every launch is a collective, and they take turns with others. */
static int launch_twice(struct rank *rank)
{
    cudaGraphExec_t exec;
    EXPECT(call_once(rank) == 0);
    EXPECT(capture(rank, &exec) == 0);
    for (int time = 0; time < 2; time++)
        EXPECT(cudaGraphLaunch(exec, rank->stream) == cudaSuccess);
    EXPECT(ncclAllReduce(rank->data, rank->data, COUNT, ncclFloat32, ncclSum, rank->comm,
                         rank->stream) == ncclInProgress);
    EXPECT(finish(rank->comm) == ncclSuccess);
    EXPECT(cudaStreamSynchronize(rank->stream) == cudaSuccess);
    memcpy(rank->common->sums[rank->number], rank->data, sizeof rank->common->sums[0]);
    EXPECT(cudaGraphExecDestroy(exec) == cudaSuccess);
    EXPECT(ncclCommAbort(rank->comm) == ncclSuccess);
    return 0;
}

TEST(test_graphs)
{
    struct common *common;
    run(launch_twice, &common);
    for (int r = 0; r < RANKS; r++)
        for (int i = 0; i < COUNT; i++)
            assert_true(common->sums[r][i] == RANKS * RANKS * RANKS * (float)(1 + 2 + 3 + 3 * i));
    munmap(common, sizeof *common);
}

/* Whether the process that does this is ended by the stand-in. */
static bool aborts(struct rank *rank, int (*mistake)(struct rank *rank))
{
    int status;
    pid_t pid = fork();
    if (pid == 0) {
        close(STDERR_FILENO);
        mistake(rank);
        _exit(0);
    }
    return pid > 0 && waitpid(pid, &status, 0) == pid && WIFSIGNALED(status) &&
           WTERMSIG(status) == SIGABRT;
}

static int abort_it(struct rank *rank)
{
    return (int)ncclCommAbort(rank->comm);
}

static int finalize_it(struct rank *rank)
{
    return (int)ncclCommFinalize(rank->comm);
}

static int end_too_early(struct rank *rank)
{
    cudaGraph_t graph = NULL;
    EXPECT(cudaStreamBeginCapture(rank->stream, cudaStreamCaptureModeThreadLocal) == cudaSuccess);
    ncclAllReduce(rank->data, rank->data, COUNT, ncclFloat32, ncclSum, rank->comm, rank->stream);
    EXPECT(cudaStreamEndCapture(rank->stream, &graph) == cudaSuccess);
    finish(rank->comm);
    return 0;
}

/* What would hang for ever, or leave the work out of the graph, ends the process. */
static int misuse_graphs(struct rank *rank)
{
    cudaGraphExec_t exec;
    EXPECT(call_once(rank) == 0);
    EXPECT(aborts(rank, end_too_early));
    EXPECT(capture(rank, &exec) == 0);
    EXPECT(aborts(rank, abort_it));
    EXPECT(aborts(rank, finalize_it));
    EXPECT(cudaStreamBeginCapture(rank->stream, cudaStreamCaptureModeThreadLocal) == cudaSuccess);
    EXPECT(ncclAllReduce(rank->data, rank->data, COUNT - 1, ncclFloat32, ncclSum, rank->comm,
                         rank->stream) == ncclInvalidUsage);
    return 0;
}

TEST(test_misused_graphs)
{
    run(misuse_graphs, NULL);
}

/* ---- what is refused, together --------------------------------------------------------------- */

TEST(test_refusals)
{
    run(call_too_early, NULL);
    run(disagree, NULL);
    run(share_a_gpu, NULL);
    run(come_as_others, NULL);
}

TEST(test_errors)
{
    setenv("DPB_STAND_IN_NCCL_FAIL", "2:2", 1);
    run(fail_behind, NULL);
    unsetenv("DPB_STAND_IN_NCCL_FAIL");
}

TEST_MAIN(NULL, NULL)
