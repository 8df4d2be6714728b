/*
 * emulated.c - the conformance suite of devices that emulate (DPB_DEVICE_EMULATED): they compute
 * nothing, so that there is no op to compare. A step of a model that their profile fits is held to
 * the promises that a strategy needs: every gradient is assigned, finite, and unchanged once it is
 * final; frontiers rise; the same pass has the same gradients, another step others; passes last.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "conform/conform.h"
#include "conform/session.h"

/* A copy of the gradients of one step. @owned; NULL: out of memory, or *status is a failure. */
static float *gradients_of(struct dpb_session *s, uint64_t step, dpb_status *status)
{
    const size_t bytes = s->graph->n_elements * sizeof(float);
    float *copy = calloc(1, bytes);
    s->pass.step = step;
    *status = dpb_allocated(copy);
    DPB_THEN(*status, dpb_session_forward(s));
    DPB_THEN(*status, dpb_session_backward(s));
    if (*status == DPB_OK)
        memcpy(copy, s->gradients, bytes);
    return copy;
}

static dpb_status check_values(const struct dpb_session *s, const float *gradients)
{
    for (uint32_t t = 0; t < s->graph->n_tensors; t++) {
        const struct dpb_tensor *tensor = &s->graph->tensors[t];
        for (uint64_t i = 0; i < tensor->n_elements; i++)
            if (!isfinite(gradients[tensor->offset + i]))
                return dpb_fail(DPB_VERIFICATION,
                                "%s: gradient of '%s', element %llu: it was not assigned, or is "
                                "not finite",
                                s->graph->name, tensor->name, (unsigned long long)i);
    }
    return DPB_OK;
}

static dpb_status hold(struct dpb_session *s)
{
    const size_t bytes = s->graph->n_elements * sizeof(float);
    dpb_status status, of_again = DPB_OK, of_other = DPB_OK;
    const int64_t began_ns = dpb_now_ns();
    float *one = gradients_of(s, 1, &status), *again = NULL, *other = NULL;
    const int64_t took_ns = dpb_now_ns() - began_ns;
    DPB_THEN(status, check_values(s, one));
    if (status == DPB_OK && took_ns < 1000)
        status = dpb_fail(DPB_VERIFICATION, "%s: a step took %lld ns: the device does not sleep",
                          s->graph->name, (long long)took_ns);
    if (status == DPB_OK) {
        other = gradients_of(s, 2, &of_other);
        again = gradients_of(s, 1, &of_again);
        status = of_other != DPB_OK ? of_other : of_again;
    }
    if (status == DPB_OK && memcmp(one, again, bytes) != 0)
        status = dpb_fail(DPB_VERIFICATION, "%s: the same step has other gradients when repeated",
                          s->graph->name);
    if (status == DPB_OK && memcmp(one, other, bytes) == 0)
        status = dpb_fail(DPB_VERIFICATION,
                          "%s: two steps have the same gradients: a strategy that sends those of "
                          "the step before would pass",
                          s->graph->name);
    free(one);
    free(other);
    free(again);
    return status;
}

dpb_status dpb_conform_emulated(const struct dpb_plugin *plugin, const void *options,
                                const struct dpb_plugin *model, const void *model_options)
{
    const struct dpb_device_ops *ops = plugin->ops;
    const struct dpb_model_ops *network = model->ops;
    struct dpb_model_info info = {.batch = 0};
    struct dpb_emulation emulation;
    struct dpb_session session;
    struct dpb_session_args args = {.ops = ops,
                                    .options = options,
                                    .type = DPB_FP32,
                                    .order = DPB_CHW,
                                    .training = true,
                                    .plain = true};
    DPB_TRY(ops->emulation(options, &emulation));
    args.batch = emulation.batch;
    while (args.precision < DPB_PRECISIONS &&
           strcmp(dpb_precision_name(args.precision), emulation.precision) != 0)
        args.precision++;
    if (args.precision == DPB_PRECISIONS || args.precision == DPB_PRECISION_FP64)
        return dpb_fail(DPB_UNSUPPORTED, "a profile of precision '%s' cannot be run",
                        emulation.precision);
    network->describe(model_options, &info);
    DPB_TRY(
        dpb_graph_build(model->name, network, model_options, info.input, info.nclass, &args.graph));
    dpb_status status = dpb_session_open(&args, &session);
    if (status != DPB_OK) {
        dpb_graph_destroy(args.graph);
        return status;
    }
    status = dpb_conform_promised(hold(&session));
    dpb_session_close(&session);
    return status;
}
