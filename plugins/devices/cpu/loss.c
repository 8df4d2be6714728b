/*
 * loss.c - softmax with cross-entropy, its mean over the labels, and the number of right answers.
 * In fp64: the logits are few.
 */
#include <math.h>

#include "ops.h"

static inline double read_logit(const struct program *p, const struct tensor *logits, size_t i)
{
    return p->type == dnnl_bf16 ? (double)dpb_bf16_to_fp32(((const uint16_t *)logits->data)[i])
                                : (double)((const float *)logits->data)[i];
}

static size_t count_labels(const struct program *p)
{
    return (size_t)p->args.batch * dpb_graph_labels(p->graph);
}

/* Labels are copied: the batch is the caller's again when backward runs. */
static void forward_loss(const struct program *p, const struct step *step)
{
    const struct tensor *logits = step->from;
    const uint32_t nclass = p->graph->nclass;
    const size_t n = count_labels(p);
    const double smoothing = step->node->smoothing;
    double *sample_loss = p->sample_loss->data, *log_sum = p->log_sum->data;
    int32_t *labels = p->labels->data;
    uint32_t *rank = p->label_rank->data;
#pragma omp parallel for
    for (size_t i = 0; i < n; i++) {
        size_t row = i * nclass;
        const uint32_t label = (uint32_t)p->batch->labels[i];
        const double wanted = read_logit(p, logits, row + label);
        double largest = read_logit(p, logits, row), sum = 0.0, all = 0.0;
        uint32_t larger = 0;
        for (uint32_t c = 0; c < nclass; c++) {
            const double logit = read_logit(p, logits, row + c);
            largest = logit > largest ? logit : largest;
            larger += c != label && !(logit < wanted || (logit == wanted && c > label));
        }
        for (uint32_t c = 0; c < nclass; c++)
            sum += exp(read_logit(p, logits, row + c) - largest);
        for (uint32_t c = 0; smoothing > 0.0 && c < nclass; c++)
            all += read_logit(p, logits, row + c);
        labels[i] = (int32_t)label;
        log_sum[i] = largest + log(sum);
        sample_loss[i] = log_sum[i] - (1.0 - smoothing) * wanted - smoothing / nclass * all;
        rank[i] = larger;
    }
}

static void backward_loss(const struct program *p, const struct step *step)
{
    const struct tensor *logits = step->from;
    const uint32_t nclass = p->graph->nclass;
    const size_t n = count_labels(p);
    const double smoothing = step->node->smoothing, share = smoothing / nclass;
    const double *log_sum = p->log_sum->data;
    const int32_t *labels = p->labels->data;
    float *fp32 = step->to->data;
    uint16_t *bf16 = step->to->data;
#pragma omp parallel for
    for (size_t i = 0; i < n; i++) {
        for (uint32_t c = 0; c < nclass; c++) {
            size_t at = i * nclass + c;
            double target = share + (c == (uint32_t)labels[i] ? 1.0 - smoothing : 0.0);
            double value = (exp(read_logit(p, logits, at) - log_sum[i]) - target) / (double)n;
            if (p->type == dnnl_bf16)
                bf16[at] = dpb_bf16_from_fp32((float)value);
            else
                fp32[at] = (float)value;
        }
    }
}

dpb_status cpu_loss_forward(struct program *p, const struct dpb_node *node)
{
    const size_t n = count_labels(p);
    DPB_TRY(cpu_buffer(p, n * sizeof(double), &p->sample_loss));
    DPB_TRY(cpu_buffer(p, n * sizeof(double), &p->log_sum));
    DPB_TRY(cpu_buffer(p, n * sizeof(int32_t), &p->labels));
    DPB_TRY(cpu_buffer(p, n * sizeof(uint32_t), &p->label_rank));
    struct tensor *const kept[] = {p->sample_loss, p->log_sum, p->labels, p->label_rank};
    for (size_t i = 0; i < sizeof kept / sizeof kept[0]; i++)
        cpu_keep(kept[i]);
    return cpu_loop(p, WHEN_ALWAYS, "forward", forward_loss,
                    cpu_plan(p, cpu_input(p, node, 0))->activation, NULL, NULL);
}

dpb_status cpu_loss_backward(struct program *p, const struct dpb_node *node)
{
    struct tensor *diff_src;
    DPB_TRY(cpu_input_gradient(p, node, 0, &diff_src));
    if (!diff_src)
        return DPB_OK;
    return cpu_loop(p, WHEN_ALWAYS, "backward", backward_loss,
                    cpu_plan(p, cpu_input(p, node, 0))->activation, diff_src, NULL);
}

void cpu_loss_outcome(const struct program *p, uint32_t valid, struct dpb_outcome *outcome)
{
    const double *sample_loss = p->sample_loss->data;
    const uint32_t *rank = p->label_rank->data;
    const size_t n = (size_t)valid * dpb_graph_labels(p->graph);
    *outcome = (struct dpb_outcome){.loss = 0.0};
    for (size_t i = 0; i < n; i++) {
        outcome->loss += sample_loss[i];
        outcome->correct += rank[i] == 0;
        outcome->in_top5 += rank[i] < 5;
    }
    outcome->loss /= (double)n;
}

dpb_status cpu_inspect_loss(const struct program *p, double *activation, double *gradient)
{
    const double *sample_loss = p->sample_loss->data;
    const size_t n = count_labels(p);
    for (size_t i = 0; i < n; i++) {
        if (activation)
            activation[i] = sample_loss[i];
        if (gradient)
            gradient[i] = 1.0 / (double)n;
    }
    return DPB_OK;
}
