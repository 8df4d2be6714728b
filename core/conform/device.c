/* device.c - the conformance suite of devices: every op, in every precision that the device
 * declares, against the reference's ops. */
#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "conform/conform.h"
#include "conform/networks.h"
#include "conform/opcheck.h"

struct subject {
    const struct dpb_device_ops *ops, *reference;
    const void *options;
    const struct dpb_network *network;
    dpb_precision precision;
    uint32_t batch;
};

/* Everything between the session's opening and its close. */
static dpb_status hold(struct dpb_session *session, const struct subject *subject)
{
    DPB_TRY(dpb_session_forward(session));
    DPB_TRY(dpb_session_backward(session));
    DPB_TRY(dpb_opcheck_ops(session));
    DPB_TRY(dpb_opcheck_loss(session, subject->reference));
    if (subject->batch == 1)
        return DPB_OK;
    DPB_TRY(dpb_opcheck_repeat(session));
    return dpb_opcheck_evaluation(session, subject->reference);
}

/* A device may refuse to compile. After that every refusal is a failure. */
static dpb_status after_compile(dpb_status status)
{
    return status == DPB_UNSUPPORTED || status == DPB_USAGE ? DPB_VERIFICATION : status;
}

static dpb_status try_batch(const struct subject *subject)
{
    const struct dpb_network *network = subject->network;
    struct dpb_model_info info = {.batch = 0};
    struct dpb_session_args args = {.ops = subject->ops,
                                    .options = subject->options,
                                    .batch = subject->batch,
                                    .type = network->type,
                                    .order = network->order,
                                    .precision = subject->precision,
                                    .training = true,
                                    .rounds_weights = true,
                                    .rounds_sums = true};
    struct dpb_session session;
    network->model->describe(network, &info);
    DPB_TRY(dpb_graph_build(network->name, network->model, network, info.input, info.nclass,
                            &args.graph));
    dpb_graph_smooth_labels(args.graph, network->smoothing);
    dpb_status status = dpb_session_open(&args, &session);
    if (status != DPB_OK) {
        dpb_graph_destroy(args.graph);
        return status;
    }
    status = after_compile(hold(&session, subject));
    dpb_session_close(&session);
    return status;
}

/* The network's own batch, and a batch of one sample. */
static dpb_status try_network(const struct subject *subject)
{
    struct subject one = *subject, own = *subject;
    struct dpb_model_info info = {.batch = 0};
    subject->network->model->describe(subject->network, &info);
    own.batch = info.batch;
    one.batch = 1;
    DPB_TRY(try_batch(&own));
    return try_batch(&one);
}

static void try_precision(struct dpb_conform *conform, const struct subject *subject)
{
    struct subject trial = *subject;
    dpb_conform_heading(conform, "%s", dpb_precision_name(subject->precision));
    for (trial.network = dpb_networks; trial.network->name; trial.network++)
        dpb_conform_trial(conform, try_network(&trial), trial.network->name);
    dpb_conform_end(conform);
}

void dpb_conform_device(struct dpb_conform *conform, const struct dpb_plugin *plugin,
                        const void *options, const struct dpb_device_ops *reference)
{
    struct subject subject = {.ops = plugin->ops, .reference = reference, .options = options};
    for (int precision = 0; precision < DPB_PRECISIONS; precision++) {
        subject.precision = (dpb_precision)precision;
        if (plugin->capabilities & (UINT64_C(1) << precision))
            try_precision(conform, &subject);
    }
    puts("each network: every activation, batch statistic and gradient against the reference's op "
         "in fp64, within device.h's bound;\n"
         "  the loss; the same bits again, with final weights overwritten and without inspect; "
         "evaluation; a batch of one sample\n"
         "not shown: speed, memory_needed, how often hooks->progress is called, profile, links, "
         "monitor");
    if (subject.ops->queues)
        puts("not shown: arenas in the device's memory, queues and events");
}
