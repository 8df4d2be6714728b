/* needs: cuda stand-in */
/*
 * test_cuda_stand_in.c - that the CUDA for tests shows mistakes of kernels: a pack that is not
 * aligned, a result that depends on the order of a block's threads, and the use of what another
 * block has left in shared memory.
 */
#include <cuda_runtime_api.h>
#include <signal.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "devices/cuda/kernels.h"
#include "lib/test.h"

enum { PACK = 4 /* floats */, N = 200 * PACK /* packs of one block */ };

/* dx = dy where y > 0, from `dy` on. */
static void launch(float *dy, const float *y, float *dx)
{
    cudaStream_t stream = NULL;
    assert_int_equal(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), 0);
    cuda_relu_backward(stream, TYPE_FP32, dy, y, dx, N);
    assert_int_equal(cudaStreamSynchronize(stream), 0);
    cudaStreamDestroy(stream);
}

static float *make(size_t n)
{
    float *made = NULL;
    assert_int_equal(cudaMalloc((void **)&made, n * sizeof *made), 0);
    for (size_t i = 0; i < n; i++)
        made[i] = (float)(1 + i);
    return made;
}

TEST(test_packs_that_are_not_aligned)
{
    float *y = make(N), *dy = make(N + PACK);
    for (int ahead = 0; ahead <= PACK; ahead++) {
        int status = 0;
        const pid_t child = fork();
        if (child == 0) {
            const struct rlimit none = {0, 0};
            setrlimit(RLIMIT_CORE, &none);
            signal(SIGABRT, SIG_DFL);
            launch(dy + ahead, y, dy + ahead);
            _exit(0);
        }
        assert_int_equal(waitpid(child, &status, 0), child);
        if (ahead % PACK == 0)
            assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
        else
            assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT);
    }
    cudaFree(dy);
    cudaFree(y);
}

/* Each thread writes what the next one reads: some launch of a few has another result. */
TEST(test_order_of_threads)
{
    float *y = make(N), first[N + PACK];
    bool differs = false;
    for (int i = 0; i < 8; i++) {
        float *dy = make(N + PACK);
        launch(dy, y, dy + PACK);
        if (i == 0)
            memcpy(first, dy, sizeof first);
        differs = differs || memcmp(first, dy, sizeof first) != 0;
        cudaFree(dy);
    }
    assert_true(differs);
    cudaFree(y);
}

extern char stand_in_shared_first, stand_in_shared_last;

/* Launches a kernel whose blocks have shared memory until that of all kernels is poisoned, but for
 * what the last block wrote. */
TEST(test_shared_memory_between_blocks)
{
    enum { IDS = 300, LAUNCHES = 16 };
    const size_t n = (size_t)(&stand_in_shared_last - &stand_in_shared_first);
    cudaStream_t stream = NULL;
    int32_t *ids = (int32_t *)make(IDS);
    uint32_t *order = (uint32_t *)make(IDS);
    size_t poisoned = 0;
    assert_int_equal(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), 0);
    for (int i = 0; i < LAUNCHES; i++)
        cuda_sort_ids(stream, ids, IDS, order);
    assert_int_equal(cudaStreamSynchronize(stream), 0);
    for (size_t i = 0; i < n; i++)
        poisoned += (unsigned char)(&stand_in_shared_first)[i] == 0xff;
    assert_true(poisoned > n / 2 && poisoned < n);
    for (uint32_t i = 0; i < IDS; i++)
        assert_int_equal(order[i], i);
    cudaStreamDestroy(stream);
    cudaFree(order);
    cudaFree(ids);
}

TEST_MAIN(NULL, NULL)
