/*
 * conv_compile.c - cuDNN compiles the kernels of convolutions with sums when their plans are made,
 * 0.4 to 3 s each. Here several threads do so at once.
 *
 * A thread takes the plans of one call at a time, in the order of its heuristic, and has a handle
 * of its own: threads may not share one. So neither the candidates nor their order depend on how
 * many threads there are. Workers of one machine that lack the same plans wait for the one that
 * compiles them, and then find them kept (plan_file.h).
 */
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <unistd.h>

#include "conv_plans.h"
#include "plan_file.h"
#include "tuning_file.h"

enum { MOST_THREADS = 256 };

struct pool {
    const struct program *p;
    struct conv_plans **all;
    size_t n;
    atomic_size_t next;
};

static void compile_next(struct pool *pool, cudnnHandle_t cudnn)
{
    for (size_t i; (i = atomic_fetch_add(&pool->next, 1)) < pool->n;)
        cuda_plans_write(pool->p, pool->all[i], cudnn);
}

/* A thread that gets no handle leaves the work to the others. */
static void *run_thread(void *pool_)
{
    struct pool *pool = pool_;
    cudnnHandle_t cudnn = NULL;
    if (cudaSetDevice(pool->p->device->id) != cudaSuccess ||
        cudnnCreate(&cudnn) != CUDNN_STATUS_SUCCESS)
        return NULL;
    compile_next(pool, cudnn);
    cudnnDestroy(cudnn);
    return NULL;
}

/* The calling thread works, too: no other thread is needed. */
static void run_pool(struct pool *pool)
{
    pthread_t threads[MOST_THREADS];
    uint32_t n = 0;
    while (n < MOST_THREADS && n + 1 < pool->p->device->threads && n + 1 < pool->n &&
           pthread_create(&threads[n], NULL, run_thread, pool) == 0)
        n++;
    compile_next(pool, pool->p->device->cudnn);
    while (n > 0)
        pthread_join(threads[--n], NULL);
}

dpb_status cuda_plans_compile(struct program *p)
{
    struct pool pool = {.p = p};
    uint64_t keys = 0;
    size_t n = 0;
    for (const struct conv_plans *plans = p->plans; plans; plans = plans->next)
        n += !plans->found;
    if (n == 0)
        return DPB_OK;
    pool.all = calloc(n, sizeof(struct conv_plans *));
    if (!pool.all)
        return cuda_no_memory();
    for (struct conv_plans *plans = p->plans; plans; plans = plans->next)
        if (!plans->found)
            pool.all[pool.n++] = plans;
    for (size_t i = 0; i < n; i++)
        keys = cuda_hash(keys, pool.all[i]->key, strlen(pool.all[i]->key));
    const int turn = cuda_plan_file_turn(p->device, keys);
    run_pool(&pool);
    if (turn >= 0)
        close(turn);
    for (size_t i = 0; i < n; i++)
        cuda_plans_remake(p, pool.all[i]);
    free(pool.all);
    return DPB_OK;
}

dpb_status cuda_plans_find(struct program *p, const struct dpb_node *node,
                           const struct conv_kind *kind, struct conv_plans **plans)
{
    DPB_TRY(cuda_plans_begin(p, node, kind, plans));
    return (*plans)->found ? DPB_OK : cuda_plans_compile(p);
}
