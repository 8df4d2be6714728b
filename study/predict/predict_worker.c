/* predict_worker.c - see predict_worker.h. */
#include "study/predict/predict_worker.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "base/log.h"
#include "base/stats.h"
#include "study/document/comparison.h"
#include "study/document/read.h"

static const double wide_spread = 0.04, default_bucket = 4 << 20;

static void take_lengths(const struct dpb_lengths *lengths, struct dpb_measured *measured)
{
    measured->factors = lengths->factors;
    measured->delays_s = lengths->delays_s;
    measured->n_factors = lengths->n;
}

static dpb_status widen(struct dpb_predict_worker *worker)
{
    worker->wide = worker->measured;
    DPB_TRY(dpb_lengths_normal(wide_spread, &worker->wide_lengths));
    take_lengths(&worker->wide_lengths, &worker->wide);
    return DPB_OK;
}

static dpb_status refuse(const struct dpb_predict_worker *worker, const char *what)
{
    return dpb_fail(DPB_USAGE, "%s: %s", worker->path, what);
}

static dpb_status check_result(const struct dpb_predict_worker *worker)
{
    const json_t *result = worker->result;
    DPB_TRY(dpb_result_of_one_worker(result, worker->path, "predict needs"));
    if (!(dpb_json_number(result, "timing.steps") >= 1))
        return refuse(worker, "the run has no timed step");
    if (dpb_json_is(result, "config.optimizer.name.value", "lars") ||
        dpb_json_is(result, "config.optimizer.name.value", "lamb") ||
        dpb_json_number(result, "config.optimizer.clip_norm.value") > 0)
        return refuse(worker,
                      "with optimizer.clip_norm or optimizer.name = lars or lamb all updates "
                      "follow the last bucket, which predict does not know: measure without");
    return DPB_OK;
}

/* Step times over their mean, rising, and the uncertainty of that mean. */
static dpb_status read_steps(struct dpb_predict_worker *worker)
{
    const json_t *steps = dpb_json_at(worker->result, "timing.step_ns");
    struct dpb_lengths *lengths = &worker->lengths;
    struct dpb_estimate estimate;
    double mean_ns = 0;
    size_t n;
    lengths->factors = dpb_json_numbers(steps, "", &n);
    DPB_TRY(dpb_allocated(lengths->factors));
    for (size_t i = 0; i < n; i++)
        mean_ns += lengths->factors[i] / (double)n;
    if (!(mean_ns > 0))
        return refuse(worker, "timing.step_ns has no times");
    dpb_estimate_of_steps(lengths->factors, n, 1, &estimate);
    worker->spread =
        isfinite(estimate.error) ? dpb_student(estimate.freedom) * estimate.error : NAN;
    for (size_t i = 0; i < n; i++)
        lengths->factors[i] /= mean_ns;
    dpb_sort(lengths->factors, n);
    lengths->n = worker->n_steps = n;
    worker->step_s = mean_ns / 1e9;
    take_lengths(lengths, &worker->measured);
    return DPB_OK;
}

static const char *type_of(const json_t *result)
{
    const char *type = dpb_json_text(result, "config.comm.gradient.value", "auto");
    if (strcmp(type, "auto") != 0)
        return type;
    return dpb_json_is(result, "config.run.precision.value", "fp64") ? "fp64" : "fp32";
}

/* When gradients are final. If a device did not report this, gradients become final evenly over
 * backward: the document and a line above the table say so. */
static dpb_status read_ready(struct dpb_predict_worker *worker)
{
    enum { EVEN = 64 };
    const json_t *result = worker->result;
    const json_t *elements = dpb_json_at(result, "timing.ready.elements");
    const json_t *ns = dpb_json_at(result, "timing.ready.ns");
    const char *type = type_of(result);
    const double bytes = strcmp(type, "fp64") == 0 ? 8 : strcmp(type, "fp32") == 0 ? 4 : 2;
    const bool fp64 = dpb_json_is(result, "config.run.precision.value", "fp64");
    const double backward_s = dpb_json_number(result, "timing.breakdown_ns.backward") / 1e9;
    const double parameters = dpb_json_number(result, "model.parameters");
    size_t n = json_array_size(elements);
    worker->weights = (fp64 ? 8 : 4) / bytes;
    worker->even = n == 0;
    n = worker->even ? EVEN : n;
    worker->ready_s = calloc(n, sizeof(double));
    worker->ready_bytes = calloc(n, sizeof(double));
    DPB_TRY(dpb_allocated(worker->ready_s && worker->ready_bytes));
    for (size_t i = 0; i < n; i++) {
        const double part = (double)(i + 1) / EVEN;
        worker->ready_s[i] = worker->even ? worker->measured.compute_s - (1 - part) * backward_s
                                          : json_number_value(json_array_get(ns, i)) / 1e9;
        worker->ready_bytes[i] =
            bytes *
            (worker->even ? part * parameters : json_number_value(json_array_get(elements, i)));
        bool rises = i == 0 || (worker->ready_bytes[i] > worker->ready_bytes[i - 1] &&
                                worker->ready_s[i] >= worker->ready_s[i - 1]);
        if (!rises || !(worker->ready_bytes[i] > 0) || !(worker->ready_s[i] >= 0))
            return refuse(worker, "timing.ready has no rising times and elements");
    }
    worker->measured.ready_s = worker->ready_s;
    worker->measured.ready_bytes = worker->ready_bytes;
    worker->measured.n_ready = n;
    /* Both are means of the same steps, by two sums. */
    worker->measured.compute_s = fmax(worker->measured.compute_s, worker->ready_s[n - 1]);
    return DPB_OK;
}

dpb_status dpb_predict_read(const char *path, const json_t *result,
                            struct dpb_predict_worker *worker)
{
    *worker = (struct dpb_predict_worker){.path = path,
                                          .result = result,
                                          .model = dpb_json_text(result, "model.name", "?"),
                                          .update = "measured"};
    snprintf(worker->kind, sizeof worker->kind, "run on device %s",
             dpb_json_text(result, "config.device.name.value", "?"));
    DPB_TRY(check_result(worker));
    DPB_TRY(read_steps(worker));
    worker->batch =
        dpb_json_number(result, "batch.per_worker") * dpb_json_number(result, "batch.accumulate");
    worker->bucket_bytes = dpb_json_number(result, "config.comm.bucket.value");
    worker->helper = dpb_json_number(result, "config.run.comm_cores.value") > 0;
    worker->measured.update_s = dpb_json_number(result, "timing.breakdown_ns.optimizer") / 1e9;
    worker->measured.compute_s = worker->step_s - worker->measured.update_s -
                                 dpb_json_number(result, "timing.breakdown_ns.comm_exposed") / 1e9;
    worker->measured.backward_s = dpb_json_number(result, "timing.breakdown_ns.backward") / 1e9;
    if (!(worker->batch > 0) || !(worker->bucket_bytes > 0) || !(worker->measured.update_s >= 0) ||
        !(worker->measured.compute_s > 0))
        return refuse(worker, "batch, comm.bucket or timing.breakdown_ns is missing");
    DPB_TRY(read_ready(worker));
    return widen(worker);
}

/* ---- from a profile ------------------------------------------------------------------------- */

dpb_status dpb_predict_take_profile(const char *path, const struct dpb_accelerator *profile,
                                    double update_elements_per_s, struct dpb_predict_worker *worker)
{
    const double elements_per_s =
        update_elements_per_s > 0 ? update_elements_per_s : profile->update_elements_per_s;
    *worker = (struct dpb_predict_worker){.path = path,
                                          .model = profile->model,
                                          .accelerator = profile->name,
                                          .source = profile->source,
                                          .update = update_elements_per_s > 0 ? "given"
                                                    : elements_per_s > 0      ? "profile"
                                                                              : "none",
                                          .batch = profile->batch,
                                          .bucket_bytes = default_bucket,
                                          .weights = 1,
                                          .helper = true};
    snprintf(worker->kind, sizeof worker->kind, "%s profile of %s", profile->kind, profile->name);
    DPB_TRY(dpb_lengths_normal(profile->spread, &worker->lengths));
    take_lengths(&worker->lengths, &worker->measured);
    worker->ready_s = calloc(profile->n_tensors, sizeof(double));
    worker->ready_bytes = calloc(profile->n_tensors, sizeof(double));
    DPB_TRY(dpb_allocated(worker->ready_s && worker->ready_bytes));
    double bytes = 0;
    for (uint32_t i = 0; i < profile->n_tensors; i++) {
        bytes += 4.0 * (double)profile->tensors[i].n_elements;
        worker->ready_s[i] = (double)(profile->forward_ns + profile->tensors[i].ready_ns) / 1e9;
        worker->ready_bytes[i] = bytes;
    }
    struct dpb_measured *m = &worker->measured;
    m->ready_s = worker->ready_s;
    m->ready_bytes = worker->ready_bytes;
    m->n_ready = profile->n_tensors;
    m->compute_s = (double)(profile->forward_ns + profile->backward_ns) / 1e9;
    m->backward_s = (double)profile->backward_ns / 1e9;
    m->update_s = elements_per_s > 0 ? (double)profile->n_parameters / elements_per_s : 0;
    worker->step_s = m->compute_s + m->update_s;
    return widen(worker);
}

dpb_status dpb_predict_delay(struct dpb_predict_worker *worker, const struct dpb_delay *delay)
{
    const double compute_s = worker->measured.compute_s;
    DPB_TRY(dpb_lengths_delay(&worker->lengths, compute_s, delay));
    take_lengths(&worker->lengths, &worker->measured);
    DPB_TRY(dpb_lengths_delay(&worker->wide_lengths, compute_s, delay));
    take_lengths(&worker->wide_lengths, &worker->wide);
    worker->delay_s = dpb_lengths_mean_delay(&worker->lengths, compute_s);
    return DPB_OK;
}

void dpb_predict_release(struct dpb_predict_worker *worker)
{
    free(worker->ready_s);
    free(worker->ready_bytes);
    dpb_lengths_release(&worker->lengths);
    dpb_lengths_release(&worker->wide_lengths);
}
