/* optimizer.c - SGD, Adagrad, Adam and LARS on ranges of the arena: see optimizer.h. */
#include <math.h>

#include "base/log.h"
#include "base/update.h"
#include "dpbench/random.h"
#include "graph/graph.h"
#include "measure/account.h"
#include "optim/norms.h"
#include "optim/optimizer_parts.h"

/* ---- ranges -------------------------------------------------------------------------------- */

/* The state of arena element `at`, which lies in an owned range; NULL where the rule has none. */
static char *state_of(const struct dpb_optimizer *optimizer, uint64_t at)
{
    char *state =
        optimizer->args.device ? optimizer->device_state : (char *)optimizer->state.memory;
    if (!state)
        return NULL;
    const uint64_t i = dpb_range_at(optimizer->owned, optimizer->args.n_owned, at);
    const uint64_t element = optimizer->state_at[i] + (at - optimizer->owned[i].begin);
    return state + element * dpb_dtype_size(optimizer->args.weight_type);
}

static void *find_state(struct dpb_optimizer *optimizer, uint64_t element)
{
    (void)__atomic_load_n(&optimizer->n_changes, __ATOMIC_ACQUIRE);
    return state_of(optimizer, element);
}

/* ---- seals --------------------------------------------------------------------------------- */

static uint64_t seal_key;

void dpb_step_key(uint64_t key)
{
    seal_key = key;
}

uint64_t dpb_step_seal(uint64_t n, bool plain)
{
    struct dpb_random4 word =
        dpb_random(seal_key, DPB_STREAM_SEAL, (uint32_t)n, (uint32_t)(n >> 32), plain, 0);
    return (uint64_t)word.v[0] << 32 | word.v[1];
}

static bool is_plain(const struct dpb_step *step)
{
    return step->seal == dpb_step_seal(step->step, true);
}

/* ---- updates ------------------------------------------------------------------------------- */

static uint32_t refused; /* an update: the run fails with the message of the refusal */

/* After the message: the whole job ends, for few strategies look at the status of `update`. */
static bool refuse(void)
{
    __atomic_store_n(&refused, 1, __ATOMIC_RELEASE);
    if (dpb_world.board)
        dpb_board_end_job(dpb_world.board);
    return true;
}

/* Whether a strategy asks for an update of elements that this rank does not own. */
static bool refuses(const struct dpb_optimizer *optimizer, struct dpb_range range)
{
    uint64_t at = range.begin;
    const uint64_t n = optimizer ? optimizer->args.n_owned : 0;
    for (uint64_t i = n ? dpb_range_at(optimizer->owned, n, at) : 0;
         i < n && at < range.end && optimizer->owned[i].begin <= at && at < optimizer->owned[i].end;
         i++)
        at = optimizer->owned[i].end;
    if (range.begin <= range.end && at >= range.end)
        return false;
    dpb_fail(DPB_FAILED,
             "the strategy updates elements %llu to %llu, and this rank owns %s: the ranges of "
             "`plan` are all that a rank updates",
             (unsigned long long)range.begin, (unsigned long long)range.end,
             n > 0 ? "not all of them" : "none");
    return refuse();
}

dpb_status dpb_optimizer_refused(void)
{
    return __atomic_load_n(&refused, __ATOMIC_ACQUIRE) ? DPB_FAILED : DPB_OK;
}

/* The first range with decay that ends behind `at`. */
static uint64_t decay_at(const struct dpb_optimizer *optimizer, uint64_t at)
{
    const uint64_t i = dpb_range_at(optimizer->decays, optimizer->n_decays, at);
    return i + (i < optimizer->n_decays && optimizer->decays[i].end <= at);
}

static dpb_update_kind kind_of(const struct dpb_optimizer *optimizer, bool plain)
{
    if (plain || optimizer->n_arrays == 0)
        return DPB_UPDATE_PLAIN;
    if (optimizer->settings.kind == DPB_ADAGRAD)
        return DPB_UPDATE_ADAGRAD;
    if (optimizer->settings.kind == DPB_ADAM)
        return DPB_UPDATE_ADAM;
    return optimizer->settings.nesterov ? DPB_UPDATE_NESTEROV : DPB_UPDATE_MOMENTUM;
}

/* A launch copies the words before its updates read them; the next ones are written when it is
 * over. */
static dpb_status capture(struct dpb_optimizer *optimizer, struct dpb_queue *queue)
{
    if (!optimizer->args.device)
        return dpb_fail(DPB_USAGE, "an update is captured of weights that are on no device");
    return optimizer->args.device->ops->copy(
        queue, &optimizer->words->words, &optimizer->pinned->words, sizeof optimizer->words->words);
}

/* Adam's divisors of its moments in the update of these n elements. An update of all owned elements
 * ends before the next one begins, however many pieces and threads there are. So the elements count
 * the updates, also on servers that make several in a step. */
static void correct(struct dpb_optimizer *optimizer, uint64_t n, double *first, double *second)
{
    const uint64_t before = __atomic_fetch_add(&optimizer->n_updated, n, __ATOMIC_RELAXED);
    const uint64_t number = before / optimizer->n_state + 1;
    *first = 1.0 - pow(optimizer->settings.beta1, (double)number);
    *second = 1.0 - pow(optimizer->settings.beta2, (double)number);
}

static void replay(struct dpb_optimizer *optimizer, const struct dpb_step *step)
{
    double first = 1.0, second = 1.0;
    if (optimizer->settings.kind == DPB_ADAM)
        correct(optimizer, optimizer->n_state, &first, &second);
    optimizer->pinned->words = (struct dpb_update_words){.rate = (float)step->learning_rate,
                                                         .scale = (float)step->scale,
                                                         .correction = (float)first,
                                                         .second_correction = (float)second};
}

/* Sets the place of Adam's second moments, and the divisors of the moments. */
static void fill_in_adam(struct dpb_optimizer *optimizer, bool captured, struct dpb_update *update)
{
    const struct dpb_optimizer_settings *settings = &optimizer->settings;
    if (update->kind != DPB_UPDATE_ADAM)
        return;
    update->second = (char *)update->state + dpb_optimizer_array_bytes(optimizer);
    update->momentum = settings->beta1;
    update->beta2 = settings->beta2;
    update->decoupled = settings->decoupled_decay;
    if (!captured) /* else each launch has words of its own */
        correct(optimizer, update->n, &update->correction, &update->second_correction);
}

/* `step` NULL: by the words, within a capture. */
static dpb_status apply(struct dpb_optimizer *optimizer, struct dpb_queue *queue,
                        struct dpb_range range, void *weights, const void *gradients,
                        const struct dpb_step *step, struct dpb_factors factors)
{
    const struct dpb_optimizer_settings *settings = &optimizer->settings;
    uint64_t decay = decay_at(optimizer, range.begin), end = decay;
    while (end < optimizer->n_decays && optimizer->decays[end].begin < range.end)
        end++;
    struct dpb_update update = {.kind = kind_of(optimizer, step && is_plain(step)),
                                .rate = factors.rate,
                                .scale = factors.scale,
                                .words = step ? NULL : &optimizer->words->words,
                                .decay = factors.decay,
                                .momentum = settings->momentum,
                                .epsilon = settings->epsilon,
                                .n = range.end - range.begin,
                                .first = range.begin,
                                .decays = optimizer->decays + decay,
                                .n_decays = end - decay,
                                .weight_type = optimizer->args.weight_type,
                                .gradient_type = optimizer->args.gradient_type,
                                .weights = weights,
                                .state = state_of(optimizer, range.begin),
                                .gradients = gradients,
                                .not_finite = optimizer->args.not_finite};
    fill_in_adam(optimizer, !step, &update);
    if (optimizer->args.device) {
        update.decays = optimizer->device_decays + decay;
        update.not_finite = optimizer->args.not_finite ? &optimizer->words->found : NULL;
        return optimizer->args.device->ops->update(queue, &update);
    }
    dpb_update_apply(&update);
    return DPB_OK;
}

static struct dpb_factors factors_of(const struct dpb_optimizer *optimizer,
                                     const struct dpb_step *step)
{
    const bool plain = step && is_plain(step);
    return (struct dpb_factors){.rate = step ? step->learning_rate : 0.0,
                                .scale = step ? step->scale : 0.0,
                                .decay = plain ? 0.0 : optimizer->settings.weight_decay};
}

/* ---- updates by norms ---------------------------------------------------------------------- */

static char *weights_at(const struct dpb_optimizer *optimizer, uint64_t element)
{
    return (char *)optimizer->args.weights + element * dpb_dtype_size(optimizer->args.weight_type);
}

static const char *gradients_at(const struct dpb_optimizer *optimizer, uint64_t element)
{
    return (const char *)optimizer->args.gradients +
           element * dpb_dtype_size(optimizer->args.gradient_type);
}

/* Whether the memory is not the arenas, from which the norms are taken. */
static bool strays(const struct dpb_optimizer *optimizer, struct dpb_range range,
                   const char *weights, const char *gradients)
{
    if (weights == weights_at(optimizer, range.begin) &&
        gradients == gradients_at(optimizer, range.begin))
        return false;
    dpb_fail(DPB_FAILED,
             "the strategy updates elements %llu to %llu from other memory than its arenas, though "
             "it has the capability DPB_COMM_WHOLE",
             (unsigned long long)range.begin, (unsigned long long)range.end);
    return refuse();
}

/* All owned elements, tensor by tensor with the gap behind it. */
static dpb_status apply_all(struct dpb_optimizer *optimizer, const struct dpb_step *step)
{
    const struct dpb_graph *graph = optimizer->args.graph;
    const bool plain = is_plain(step);
    if (!plain)
        dpb_norms_factors(&optimizer->args, step, optimizer->factors);
    for (uint64_t i = 0; i < optimizer->args.n_owned; i++)
        for (uint64_t at = optimizer->owned[i].begin, end; at < optimizer->owned[i].end; at = end) {
            const uint32_t t = dpb_graph_tensor_at(graph, at);
            end = t + 1 < graph->n_tensors ? graph->tensors[t + 1].offset : graph->n_elements;
            end = end < optimizer->owned[i].end ? end : optimizer->owned[i].end;
            DPB_TRY(apply(optimizer, NULL, (struct dpb_range){at, end}, weights_at(optimizer, at),
                          gradients_at(optimizer, at), step,
                          plain ? factors_of(optimizer, step) : optimizer->factors[t]));
        }
    return DPB_OK;
}

/* The last range of a step to be updated brings the update of all. So does the last range of a
 * proof's step, which is plain: a proof sees the behaviour of training. */
static dpb_status land(struct dpb_optimizer *optimizer, struct dpb_range range,
                       const struct dpb_step *step)
{
    const uint64_t all = optimizer->n_state, before = optimizer->n_landed;
    const bool begins = optimizer->landing != step->step;
    optimizer->n_landed = (begins ? 0 : before) + range.end - range.begin;
    optimizer->landing = step->step;
    if ((!begins || before == 0 || before == all) && optimizer->n_landed <= all)
        return optimizer->n_landed == all ? apply_all(optimizer, step) : DPB_OK;
    dpb_fail(DPB_FAILED,
             "the strategy updates %llu of %llu elements in a step, though it has the capability "
             "DPB_COMM_WHOLE",
             (unsigned long long)(begins ? before : optimizer->n_landed), (unsigned long long)all);
    refuse();
    return DPB_FAILED;
}

/* ---- the service --------------------------------------------------------------------------- */

static dpb_status update(struct dpb_optimizer *optimizer, struct dpb_queue *queue,
                         struct dpb_range range, void *weights, const void *gradients,
                         uint64_t bucket, const struct dpb_step *step)
{
    if (refuses(optimizer, range))
        return DPB_FAILED;
    if (range.begin == range.end)
        return DPB_OK;
    if (optimizer->factors && strays(optimizer, range, weights, gradients))
        return DPB_FAILED;
    if (optimizer->args.device)
        return apply(optimizer, queue, range, weights, gradients, step,
                     factors_of(optimizer, step));
    const int64_t began_ns = dpb_now_ns();
    (void)__atomic_load_n(&optimizer->n_changes, __ATOMIC_ACQUIRE);
    const dpb_status status =
        optimizer->factors
            ? land(optimizer, range, step)
            : apply(optimizer, queue, range, weights, gradients, step, factors_of(optimizer, step));
    dpb_optimizer_changed(optimizer);
    dpb_account_span(bucket, DPB_PHASE_UPDATE, began_ns, dpb_now_ns());
    return status;
}

const struct dpb_optimizer_ops dpb_optimizers = {
    .update = update, .state = find_state, .capture = capture, .replay = replay};
