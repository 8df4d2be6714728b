/* evaluations.c - see evaluations.h. */
#include "plan/evaluations.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/log.h"
#include "base/stats.h"
#include "checkpoint/safetensors.h"

enum { TEXT = 256 }; /* of one: 8 numbers of at most 20 digits, and one of 24 */

char *dpb_evaluations_text(const struct dpb_eval *evals, uint64_t n)
{
    char *text = malloc(n * TEXT + 1);
    size_t at = 0;
    if (!text)
        return NULL;
    text[0] = '\0';
    for (const struct dpb_eval *eval = evals; eval < evals + n; eval++)
        at +=
            (size_t)snprintf(text + at, TEXT,
                             "%" PRIu64 " %" PRIu64 " %" PRIu64 " %" PRId64 " %.17g %" PRIu64
                             " %" PRIu64 " %" PRIu64 " %" PRIu64 ";",
                             eval->step, eval->epoch, eval->trained_samples, eval->trained_ns,
                             eval->loss, eval->correct, eval->in_top5, eval->samples, eval->labels);
    return text;
}

dpb_status dpb_evaluations_read(const char *path, struct dpb_eval *evals, uint64_t capacity,
                                uint64_t *n)
{
    struct dpb_safetensors *file;
    DPB_TRY(dpb_safetensors_open(path, &file));
    const char *text = dpb_safetensors_metadata(file, DPB_EVALUATIONS_KEY);
    dpb_status status = DPB_OK;
    for (*n = 0; status == DPB_OK && text && *text; ++*n) {
        struct dpb_eval eval;
        int length = 0;
        const int found =
            sscanf(text,
                   "%" SCNu64 " %" SCNu64 " %" SCNu64 " %" SCNd64 " %lg %" SCNu64 " %" SCNu64
                   " %" SCNu64 " %" SCNu64 ";%n",
                   &eval.step, &eval.epoch, &eval.trained_samples, &eval.trained_ns, &eval.loss,
                   &eval.correct, &eval.in_top5, &eval.samples, &eval.labels, &length);
        if (found != 9 || length == 0 || *n == capacity || eval.trained_ns < 0 ||
            eval.correct > eval.labels || eval.in_top5 > eval.labels)
            status = dpb_fail(DPB_DATA,
                              "%s: %s: evaluation %" PRIu64 " is damaged or one too many, '%.60s'",
                              path, DPB_EVALUATIONS_KEY, *n + 1, text);
        else
            evals[*n] = eval;
        text += length;
    }
    dpb_safetensors_close(file);
    return status;
}

bool dpb_evaluations_meet(const struct dpb_eval *evals, uint64_t n,
                          const struct dpb_settings *settings)
{
    const uint64_t of = settings->eval.criterion == DPB_MEDIAN5 ? 5 : 1;
    const double loss = settings->eval.target_loss; /* its negative: more is better */
    double last[5];
    if ((loss == 0 && settings->eval.target == 0) || n < of)
        return false;
    for (uint64_t i = 0; i < of; i++) {
        const struct dpb_eval *eval = &evals[n - of + i];
        last[i] = eval->labels == 0 || isnan(eval->loss) ? -INFINITY
                  : loss > 0                             ? -eval->loss
                             : (double)eval->correct / (double)eval->labels;
    }
    dpb_sort(last, of);
    return last[of / 2] >= (loss > 0 ? -loss : settings->eval.target);
}
