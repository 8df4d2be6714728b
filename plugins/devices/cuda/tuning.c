/*
 * tuning.c - which algorithm is the fastest for a convolution, of cuDNN's, and for a product of
 * matrices, of cuBLASLt's: tried once, and kept in a file.
 *
 * Processes that share a GPU take turns at trials, and read what the others have found
 * (tuning_file.h).
 */
#include <assert.h>

#include "streams.h"
#include "tuning_file.h"

enum { TRIES = 3 };

struct tuning {
    struct program *p;
    struct tuning_file file;
};

/* ---- trying -------------------------------------------------------------------------------- */

/* A step as it stands, and what comes behind it; NULL: nothing. */
struct trial {
    const struct program *p;
    const struct step *step;
    struct step *const *next; /* FUSED_TAKERS, of which some may be NULL */
};

static dpb_status run_trial(const void *trial_)
{
    const struct trial *trial = trial_;
    DPB_TRY(trial->step->run(trial->p, trial->step));
    for (int i = 0; trial->next && i < FUSED_TAKERS && trial->next[i]; i++)
        DPB_TRY(trial->next[i]->run(trial->p, trial->next[i]));
    return DPB_OK;
}

/* *ran: false where the candidate failed and the GPU goes on. Of an error that stays with the GPU's
 * context every later call fails, too. */
static dpb_status time_steps(const struct tuning *tuning, const struct step *step,
                             struct step *const *next, bool *ran, float *best_ms)
{
    const struct trial trial = {tuning->p, step, next};
    struct program *p = tuning->p;
    p->on_trial = true;
    *ran = cuda_time_best(p, step->node, step->what, run_trial, &trial, TRIES, best_ms) == DPB_OK;
    p->on_trial = false;
    if (*ran)
        return DPB_OK;
    cudaGetLastError();
    return cuda_check(p, step->node, step->what, cudaStreamSynchronize(p->device->stream));
}

/* What may be taken for a step: numbers [first, end), and how the file writes them. */
struct candidates {
    const struct step *step;
    struct step *const *next; /* timed with it, as in struct trial; NULL: nothing is */
    int *taken;
    int first, end;
    struct written {
        int algorithm, math;
    } written[1 + CONV_CHOICES];
};
static_assert((int)GEMM_CHOICES <= CONV_CHOICES && (int)FUSED_CHOICES <= CONV_CHOICES, "room");

/* Of an earlier step of the same shape here, or else of the file. */
static bool take_known(const struct tuning *tuning, const char *key, const struct candidates *from)
{
    int algorithm, math;
    if (!cuda_tuning_look_up(&tuning->file, key, &algorithm, &math))
        return false;
    for (int i = from->first; i < from->end; i++) {
        const struct written *written = &from->written[i - from->first];
        if (written->algorithm == algorithm && written->math == math) {
            *from->taken = i;
            return true;
        }
    }
    return false;
}

static dpb_status take_fastest(struct tuning *tuning, const char *key,
                               const struct candidates *from)
{
    float best_ms = 1e30f;
    int best = from->end;
    if (take_known(tuning, key, from) ||
        (cuda_tuning_first_trial(&tuning->file) && take_known(tuning, key, from)))
        return DPB_OK;
    for (int i = from->first; i < from->end; i++) {
        float ms;
        bool ran;
        *from->taken = i;
        DPB_TRY(time_steps(tuning, from->step, from->next, &ran, &ms));
        if (ran && ms < best_ms) {
            best_ms = ms;
            best = i;
        }
    }
    if (best == from->end)
        return cuda_host->fail(DPB_FAILED,
                               "device cuda: none of %d algorithms for the %s of '%s' runs; the "
                               "warnings say why; device.tuning = no takes the library's choice",
                               from->end - from->first, from->step->what, from->step->node->name);
    *from->taken = best;
    const struct written *written = &from->written[best - from->first];
    return cuda_tuning_add(&tuning->file, key, written->algorithm, written->math);
}

static dpb_status tune_conv(struct tuning *tuning, const struct step *step, enum conv_call call)
{
    static const char *const calls[CONV_CALLS] = {"forward", "data", "weights"};
    struct conv *conv = cuda_plan(tuning->p, step->node)->conv;
    struct candidates from = {
        .step = step, .taken = &conv->call[call].taken, .end = (int)conv->call[call].n};
    char key[TUNING_KEY_BYTES];
    cuda_tuning_key(tuning->p, step->node, calls[call], key);
    for (int i = 0; i < from.end; i++) {
        const struct conv_choice *choice = &conv->call[call].choices[i];
        from.written[i] = (struct written){choice->algorithm, (int)choice->math};
    }
    return from.end < 2 ? DPB_OK : take_fastest(tuning, key, &from);
}

static dpb_status tune_gemm(struct tuning *tuning, const struct step *step, struct gemm *gemm)
{
    struct candidates from = {.step = step, .taken = &gemm->taken, .end = (int)gemm->n};
    for (int i = 0; i < from.end; i++)
        from.written[i] = (struct written){gemm->choices[i].rank, 0};
    return from.end < 2 ? DPB_OK : take_fastest(tuning, gemm->key, &from);
}

/* The plans of a convolution's call with sums and, unless device.fusion = on, the call by its
 * fastest algorithm: each with the steps that take what it leaves. */
static dpb_status tune_fused(struct tuning *tuning, const struct step *step, enum fused_call call,
                             size_t at)
{
    const struct program *p = tuning->p;
    struct fused *fused = cuda_plan(p, step->node)->fused[call];
    const int first = p->device->options.fusion == FUSION_ON ? 0 : SEPARATE;
    struct step *takers[FUSED_TAKERS];
    struct candidates from = {
        .step = step, .next = takers, .taken = &fused->taken, .first = first, .end = (int)fused->n};
    if (call == FUSED_DATA && fused->taken == SEPARATE) /* forward has a step of its own for it */
        DPB_TRY(tune_conv(tuning, step, CONV_DATA));
    if (fused->tuned)
        return DPB_OK;
    cuda_fused_takers(p, call, at, takers);
    for (int which = first; which < from.end; which++)
        from.written[which - first] =
            (struct written){which == SEPARATE ? SEPARATE : fused->plans[which].rank, 0};
    DPB_TRY(take_fastest(tuning, fused->key, &from));
    fused->tuned = true;
    return DPB_OK;
}

static dpb_status tune_list(struct tuning *tuning, const struct step_list *list)
{
    for (size_t i = 0; i < list->n; i++) {
        const struct step *step = &list->steps[i];
        struct gemm *gemm = cuda_gemm_of(tuning->p, step);
        enum fused_call fused;
        enum conv_call call;
        if (cuda_is_conv(step, &call))
            DPB_TRY(tune_conv(tuning, step, call));
        if (cuda_is_fused(step, &fused))
            DPB_TRY(tune_fused(tuning, step, fused, i));
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
    cuda_tuning_close(&tuning.file, status == DPB_OK);
    return status;
}
