/*
 * tuning.c - which plan of cuDNN's is the fastest for a convolution, and which algorithm of
 * cuBLASLt's for a product of matrices: timed once, and kept in a file.
 *
 * A GPU's clocks take a moment to rise. So the first trials of a program come after WARM_MS of
 * work. A convolution has up to twelve candidates, and most take several times as long as the best:
 * they are dropped after their first run. The others run by turns, TRIES times each, and
 * the least median wins. After FIRST_TRIES the clearly slower ones are dropped. A try of a short
 * one is SHORT_RUNS runs.
 *
 * Processes that share a GPU take turns at trials, and read the others' results (tuning_file.h).
 */
#include <assert.h>
#include <stdlib.h>

#include "ops.h"
#include "products.h"
#include "streams.h"

enum { TRIES = 11, FIRST_TRIES = 3, WARM_MS = 200, SHORT_RUNS = 8, MOST = PLAN_CHOICES };
static const float SHORT_MS = 0.1f, SLOW_AT_FIRST = 2.0f, SLOW = 1.5f;
static_assert((int)GEMM_CHOICES <= PLAN_CHOICES, "room");

struct tuning {
    struct program *p;
    struct tuning_file file;
    cudaEvent_t ends[2]; /* around the timed work; NULL: nothing was timed yet */
    bool warm;           /* the GPU's clocks are up */
};

/* ---- trying -------------------------------------------------------------------------------- */

/* The choices for a step: numbers [0, n), and their ranks in the file. */
struct candidates {
    const struct program *p;
    const struct step *step;
    int *taken;
    int n;
    int rank[MOST];
};

static dpb_status run_trial(const void *candidates)
{
    const struct candidates *from = candidates;
    return from->step->run(from->p, from->step);
}

/* Times number i of the candidates. *ran: false if it failed and the GPU still works. An error that
 * stays with the GPU's context fails every later call. */
static dpb_status time_candidate(const struct tuning *tuning, const struct candidates *from, int i,
                                 int runs, bool *ran, float *ms)
{
    struct program *p = tuning->p;
    const struct step *step = from->step;
    *from->taken = i;
    p->on_trial = true;
    *ran = cuda_time_runs(p, step->node, step->what, run_trial, from, runs, tuning->ends, ms) ==
           DPB_OK;
    p->on_trial = false;
    if (*ran)
        return DPB_OK;
    cudaGetLastError();
    return cuda_check(p, step->node, step->what, cudaStreamSynchronize(p->device->stream));
}

/* By candidate: whether it runs, its runs between two events, and the times of its tries. */
struct trials {
    bool ran[MOST];
    int runs[MOST];
    float ms[MOST][TRIES];
};

static dpb_status time_turn(struct tuning *tuning, const struct candidates *from, struct trials *t,
                            int try)
{
    for (int i = 0; i < from->n; i++)
        if (t->ran[i])
            DPB_TRY(time_candidate(tuning, from, i, t->runs[i], &t->ran[i], &t->ms[i][try]));
    return DPB_OK;
}

/* Each once, so that libraries load their kernels. Sets `ran` and `runs` of each; *n: how many have
 * run. */
static dpb_status run_each(struct tuning *tuning, const struct candidates *from, struct trials *t,
                           int *n)
{
    *n = 0;
    for (int i = 0; i < 2 && !tuning->ends[i]; i++)
        CUDA_TRY(cudaEventCreate(&tuning->ends[i]));
    for (int i = 0; i < from->n; i++) {
        t->ran[i] = true;
        t->runs[i] = 1;
    }
    DPB_TRY(time_turn(tuning, from, t, 0));
    for (int i = 0; i < from->n; i++) {
        t->runs[i] = t->ms[i][0] < SHORT_MS ? SHORT_RUNS : 1;
        *n += t->ran[i];
    }
    return DPB_OK;
}

static dpb_status raise_clocks(struct tuning *tuning, const struct candidates *from,
                               struct trials *t)
{
    float sum_ms = 0.0f;
    bool any = true;
    while (any && sum_ms < WARM_MS) {
        any = false;
        DPB_TRY(time_turn(tuning, from, t, 0));
        for (int i = 0; i < from->n; i++) {
            sum_ms += t->ran[i] ? t->ms[i][0] * (float)t->runs[i] : 0.0f;
            any = any || t->ran[i];
        }
    }
    tuning->warm = true;
    return DPB_OK;
}

static int by_size(const void *a, const void *b)
{
    const float x = *(const float *)a, y = *(const float *)b;
    return (x > y) - (x < y);
}

/* Sorts n tries and returns their median. */
static float median(float ms[], int n)
{
    qsort(ms, (size_t)n, sizeof ms[0], by_size);
    return ms[n / 2];
}

/* The place of the least median of n tries; -1: none runs. */
static int least(struct trials *t, int n_candidates, int n, float *best_ms)
{
    int best = -1;
    for (int i = 0; i < n_candidates; i++) {
        if (!t->ran[i])
            continue;
        const float ms = median(t->ms[i], n);
        if (best < 0 || ms < *best_ms) {
            *best_ms = ms;
            best = i;
        }
    }
    return best;
}

/* Drops candidates whose fastest of n tries is slower than `slow` times the best's median, unless
 * it is within spare_ms. Returns the number of candidates left. */
static int drop_slow(struct trials *t, int n_candidates, int n, float slow, float spare_ms)
{
    float best_ms;
    int left = 0;
    if (least(t, n_candidates, n, &best_ms) < 0)
        return 0;
    const float most_ms = slow * best_ms > spare_ms ? slow * best_ms : spare_ms;
    for (int i = 0; i < n_candidates; i++) {
        t->ran[i] = t->ran[i] && t->ms[i][0] <= most_ms;
        left += t->ran[i];
    }
    return left;
}

/* *best: -1 where none runs. The last that is left is not timed. */
static dpb_status find_fastest(struct tuning *tuning, const struct candidates *from, int *best)
{
    struct trials t = {.ran = {false}};
    float best_ms;
    int n_ran;
    DPB_TRY(run_each(tuning, from, &t, &n_ran));
    if (n_ran > 1 && !tuning->warm)
        DPB_TRY(raise_clocks(tuning, from, &t));
    /* One run of a short one says little. */
    int left = drop_slow(&t, from->n, 1, SLOW_AT_FIRST, SHORT_MS);
    for (int try = 0; try < TRIES && left > 1; try++) {
        DPB_TRY(time_turn(tuning, from, &t, try));
        if (try + 1 == FIRST_TRIES)
            left = drop_slow(&t, from->n, FIRST_TRIES, SLOW, 0.0f);
    }
    *best = least(&t, from->n, TRIES, &best_ms);
    return DPB_OK;
}

/* Takes the choice of an earlier step of the same shape here, or else the file's. */
static bool take_known(const struct tuning *tuning, const char *key, const struct candidates *from)
{
    int rank;
    if (!cuda_tuning_look_up(&tuning->file, key, &rank))
        return false;
    for (int i = 0; i < from->n; i++) {
        if (from->rank[i] == rank) {
            *from->taken = i;
            return true;
        }
    }
    return false;
}

static dpb_status take_fastest(struct tuning *tuning, const char *key,
                               const struct candidates *from)
{
    int best;
    if (take_known(tuning, key, from) ||
        (cuda_tuning_first_trial(&tuning->file) && take_known(tuning, key, from)))
        return DPB_OK;
    DPB_TRY(find_fastest(tuning, from, &best));
    if (best < 0)
        return cuda_host->fail(DPB_FAILED,
                               "device cuda: none of %d algorithms for the %s of '%s' runs; the "
                               "warnings say why; device.tuning = no takes the library's choice",
                               from->n, from->step->what, from->step->node->name);
    *from->taken = best;
    return cuda_tuning_add(&tuning->file, key, from->rank[best]);
}

/* ---- calls, products ----------------------------------------------------------------------- */

static dpb_status tune_conv(struct tuning *tuning, const struct step *step)
{
    struct conv_plans *plans = cuda_plan(tuning->p, step->node)->conv[step->which];
    struct candidates from = {
        .p = tuning->p, .step = step, .taken = &plans->taken, .n = (int)plans->n};
    if (plans->tuned)
        return DPB_OK;
    for (int i = 0; i < from.n; i++)
        from.rank[i] = plans->plans[i].rank;
    DPB_TRY(take_fastest(tuning, plans->key, &from));
    plans->tuned = true;
    return DPB_OK;
}

static dpb_status tune_gemm(struct tuning *tuning, const struct step *step, struct gemm *gemm)
{
    struct candidates from = {
        .p = tuning->p, .step = step, .taken = &gemm->taken, .n = (int)gemm->n};
    for (int i = 0; i < from.n; i++)
        from.rank[i] = gemm->choices[i].rank;
    return from.n < 2 ? DPB_OK : take_fastest(tuning, gemm->key, &from);
}

static dpb_status tune_list(struct tuning *tuning, const struct step_list *list)
{
    for (size_t i = 0; i < list->n; i++) {
        const struct step *step = &list->steps[i];
        struct gemm *gemm = cuda_gemm_of(tuning->p, step);
        if (cuda_is_conv(step))
            DPB_TRY(tune_conv(tuning, step));
        if (gemm)
            DPB_TRY(tune_gemm(tuning, step, gemm));
    }
    return DPB_OK;
}

dpb_status cuda_tune(struct program *p)
{
    struct tuning tuning = {.p = p};
    if (!cuda_tunes(&p->device->options))
        return DPB_OK;
    cuda_tuning_open(p->device, &tuning.file);
    dpb_status status = tune_list(&tuning, &p->forward);
    DPB_THEN(status, tune_list(&tuning, &p->backward));
    cuda_tuning_close(&tuning.file);
    for (int i = 0; i < 2; i++) {
        if (tuning.ends[i])
            cudaEventDestroy(tuning.ends[i]);
    }
    return status;
}
