/*
 * loss.c - softmax with cross-entropy, its mean over the labels, and the number of right answers.
 *
 * Exponentials are fp32, of differences that are taken in fp64; their sums are fp64 from blocks of
 * AT_ONCE classes on.
 */
#include <math.h>

#include "inner.h"
#include "ops.h"

enum { AT_ONCE = 256 /* classes */ };

/* A label's logits. */
struct row {
    const void *logits;
    size_t first; /* element of the first class's */
    uint32_t nclass, label;
    double smoothing;
};

/* What forward finds. */
struct answer {
    double loss, log_sum;
    uint32_t rank; /* logits that are larger than the label's */
};

/* The first of equal logits is larger, and so is one that is no number. */
INLINE uint32_t rank_of(const struct row *row, bool bf16)
{
    const float wanted = get(row->logits, row->first + row->label, bf16);
    uint32_t larger = 0;
#pragma omp simd reduction(+ : larger)
    for (uint32_t c = 0; c < row->nclass; c++) {
        const float logit = get(row->logits, row->first + c, bf16);
        const uint32_t equal = (uint32_t)(logit == wanted), behind = (uint32_t)(c >= row->label);
        larger += 1U - ((uint32_t)(logit < wanted) | (equal & behind));
    }
    /* The label itself counts where it is no number. */
    return larger - (uint32_t) !(wanted == wanted);
}

INLINE struct answer answer_of(const struct row *row, bool bf16)
{
    const float largest = largest_of(row->logits, row->first, row->nclass, bf16);
    double sum = 0.0, all = 0.0;
    for (uint32_t begin = 0; begin < row->nclass; begin += AT_ONCE) {
        const uint32_t n = row->nclass - begin < AT_ONCE ? row->nclass - begin : AT_ONCE;
        float part = 0.0F, logits = 0.0F;
#pragma omp simd reduction(+ : part, logits)
        for (uint32_t c = 0; c < n; c++) {
            const float logit = get(row->logits, row->first + begin + c, bf16);
            part += exponential(logit - largest);
            logits += logit;
        }
        sum += (double)part;
        all += (double)logits;
    }
    const double log_sum = (double)largest + log(sum);
    const double wanted = (double)get(row->logits, row->first + row->label, bf16);
    const double smooth = row->smoothing > 0.0 ? row->smoothing / row->nclass * all : 0.0;
    return (struct answer){.loss = log_sum - (1.0 - row->smoothing) * wanted - smooth,
                           .log_sum = log_sum,
                           .rank = rank_of(row, bf16)};
}

KERNEL struct answer answer(const struct row *row, bool bf16)
{
    return bf16 ? answer_of(row, true) : answer_of(row, false);
}

/* The gradient by the logits, over the number of labels. */
INLINE void differentiate_row(const struct row *row, double log_sum, float weight, void *to,
                              bool bf16)
{
    const float share = (float)(row->smoothing / row->nclass);
#pragma omp simd
    for (uint32_t c = 0; c < row->nclass; c++) {
        const double below = (double)get(row->logits, row->first + c, bf16) - log_sum;
        const float target = kept_if(c == row->label, (float)(1.0 - row->smoothing)) + share;
        put(to, row->first + c, (exponential((float)below) - target) * weight, bf16);
    }
}

KERNEL void differentiate(const struct row *row, double log_sum, float weight, void *to, bool bf16)
{
    if (bf16)
        differentiate_row(row, log_sum, weight, to, true);
    else
        differentiate_row(row, log_sum, weight, to, false);
}

static size_t count_labels(const struct program *p)
{
    return (size_t)p->args.batch * dpb_graph_labels(p->graph);
}

static struct row row_of(const struct program *p, const struct step *step, size_t i, uint32_t label)
{
    return (struct row){.logits = step->from->data,
                        .first = i * p->graph->nclass,
                        .nclass = p->graph->nclass,
                        .label = label,
                        .smoothing = step->node->smoothing};
}

/* Labels are copied: the batch is the caller's again when backward runs. */
static void forward_loss(const struct program *p, const struct step *step)
{
    const size_t n = count_labels(p);
    double *sample_loss = p->sample_loss->data, *log_sum = p->log_sum->data;
    int32_t *labels = p->labels->data;
    uint32_t *rank = p->label_rank->data;
#pragma omp parallel for
    for (size_t i = 0; i < n; i++) {
        const struct row row = row_of(p, step, i, (uint32_t)p->batch->labels[i]);
        const struct answer found = answer(&row, p->type == dnnl_bf16);
        labels[i] = (int32_t)row.label;
        log_sum[i] = found.log_sum;
        sample_loss[i] = found.loss;
        rank[i] = found.rank;
    }
}

static void backward_loss(const struct program *p, const struct step *step)
{
    const size_t n = count_labels(p);
    const double *log_sum = p->log_sum->data;
    const int32_t *labels = p->labels->data;
#pragma omp parallel for
    for (size_t i = 0; i < n; i++) {
        const struct row row = row_of(p, step, i, (uint32_t)labels[i]);
        differentiate(&row, log_sum[i], (float)(1.0 / (double)n), step->to->data,
                      p->type == dnnl_bf16);
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
