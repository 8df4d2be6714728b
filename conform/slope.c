/* slope.c - see slope.h. */
#include "conform/slope.h"

#include <math.h>
#include <stdlib.h>

#include "base/log.h"
#include "dpbench/random.h"

/*
 * A step along a random direction is to move the loss by one of these shares of itself. A smaller
 * move drowns in roundings, a larger one crosses the kinks of ReLUs and pools. One must agree,
 * along one of two directions; a wrong gradient agrees with few.
 */
static const double moves[] = {0x1p-13, 0x1p-16, 0x1p-10, 0x1p-14, 0x1p-12};
enum { N_MOVES = sizeof moves / sizeof moves[0], N_DIRECTIONS = 2 };
/* Where the gradient is next to nothing: a step's share of the weights' size. */
static const double largest_step = 0x1p-8;
/* How far a slope may be off, as a share of the gradient's norm, and the loss, as a share of
 * itself. The measured errors are in docs/writing-plugins.md. */
static const double slope_bound = 0.2, loss_bound = 0x1p-20;
/* A prime above any number of tensors. */
enum { SCATTER = 7919 };

/* One tensor and its direction. */
struct line {
    struct dpb_session *s;
    const struct dpb_tensor *tensor;
    double *weights, *direction; /* as they were; signs */
    double norm, slope, size;    /* of the gradients; along the direction; of the weights */
    double measured, limit;      /* the loss's slope, and how far it may be off */
};

static void draw(struct line *line, uint32_t k, uint32_t number)
{
    const struct dpb_tensor *tensor = line->tensor;
    struct dpb_random4 r = {{0}};
    double norm = 0, size = 0;
    line->slope = 0;
    for (uint64_t i = 0; i < tensor->n_elements; i++) {
        if (i % 128 == 0)
            r = dpb_random(DPB_SESSION_SEED, DPB_STREAM_SYNTHETIC, 3000 + k, (uint32_t)(i / 128),
                           number, 0);
        const double gradient = dpb_session_value(line->s, line->s->gradients, tensor->offset + i);
        line->direction[i] = r.v[i / 32 % 4] >> (i % 32) & 1 ? 1 : -1;
        line->weights[i] = dpb_session_value(line->s, line->s->weights, tensor->offset + i);
        line->slope += gradient * line->direction[i];
        norm += gradient * gradient;
        size += line->weights[i] * line->weights[i];
    }
    line->norm = sqrt(norm);
    line->size = size > 0 ? sqrt(size / (double)tensor->n_elements) : 0.1;
}

static void move(const struct line *line, double by)
{
    for (uint64_t i = 0; i < line->tensor->n_elements; i++)
        dpb_session_set(line->s, line->s->weights, line->tensor->offset + i,
                        line->weights[i] + by * line->direction[i]);
    line->s->pass.weights_changed = true;
}

static dpb_status loss_at(const struct line *line, double by, double *loss)
{
    move(line, by);
    DPB_TRY(dpb_session_forward(line->s));
    *loss = line->s->outcome.loss;
    return DPB_OK;
}

/* `loss`: where the weights were. */
static dpb_status compare(struct line *line, double loss, bool *agrees)
{
    const double largest = largest_step * line->size;
    *agrees = false;
    for (int i = 0; i < N_MOVES && !*agrees; i++) {
        const double wanted = moves[i] * loss / line->norm;
        const double by = wanted < largest ? wanted : largest; /* the norm may be 0 */
        double above, below;
        DPB_TRY(loss_at(line, by, &above));
        DPB_TRY(loss_at(line, -by, &below));
        line->measured = (above - below) / (2 * by);
        line->limit = slope_bound * line->norm + loss_bound * loss / by;
        *agrees = fabs(line->measured - line->slope) <= line->limit;
    }
    move(line, 0);
    return DPB_OK;
}

static dpb_status check_tensor(struct dpb_session *s, uint32_t k, double loss)
{
    struct line line = {.s = s, .tensor = &s->graph->tensors[k]};
    double *memory = dpb_session_allocate(2 * line.tensor->n_elements, sizeof *memory);
    dpb_status status = DPB_OK;
    bool agrees = false;
    if (!memory)
        return DPB_NO_MEMORY;
    line.weights = memory;
    line.direction = memory + line.tensor->n_elements;
    for (uint32_t i = 0; i < N_DIRECTIONS && status == DPB_OK && !agrees; i++) {
        draw(&line, k, i);
        status = compare(&line, loss, &agrees);
    }
    free(memory);
    if (status != DPB_OK || agrees)
        return status;
    return dpb_fail(DPB_VERIFICATION,
                    "%s: along a direction of '%s' the loss rises by %.6g, its gradient says %.6g "
                    "+- %.2g: the loss is not this batch's, or the gradient leaves out samples or "
                    "layers",
                    s->graph->name, line.tensor->name, line.measured, line.slope, line.limit);
}

dpb_status dpb_slope_check(struct dpb_session *s, int64_t until_ns, uint32_t *n)
{
    DPB_TRY(dpb_session_forward(s));
    DPB_TRY(dpb_session_backward(s));
    const double loss = fabs(s->outcome.loss);
    for (*n = 0; *n < s->graph->n_tensors && (*n == 0 || dpb_now_ns() < until_ns); (*n)++)
        DPB_TRY(check_tensor(s, (uint32_t)((uint64_t)*n * SCATTER % s->graph->n_tensors), loss));
    return DPB_OK;
}
