/* optimizer.c - see optimizer.h. */
#include "optim/optimizer.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/log.h"
#include "base/update.h"
#include "base/vec.h"
#include "dpbench/random.h"
#include "graph/graph.h"
#include "measure/account.h"

struct dpb_optimizer_words {
    uint64_t found;                /* see args.not_finite */
    struct dpb_update_words words; /* of a captured step */
};

struct dpb_optimizer {
    struct dpb_optimizer_args args; /* `settings` and `owned` are those below */
    struct dpb_optimizer_settings settings;
    struct dpb_range *owned;
    uint64_t *state_at; /* where the state of each owned range begins, in elements */
    uint64_t n_state;
    uint32_t n_arrays;        /* of the state, each of n_state elements */
    uint64_t n_updated;       /* elements that were updated, plain steps aside */
    struct dpb_mapping state; /* zero bytes: none needed */
    uint64_t n_changes;       /* of the state, for the order of memory: see dpb_optimizer_mapping */
    struct dpb_range *decays; /* arena elements with weight decay */
    uint64_t n_decays;
    /* With arenas on a device: the state, a copy of `decays`, and words are there. */
    char *device_state;
    struct dpb_range *device_decays;
    struct dpb_optimizer_words *words;
    struct dpb_optimizer_words *pinned; /* a copy of `found`; each launch copies from it */
    /* Where the rule needs norms; zeroed: it needs none. Its arrays are in host_norms, or in
     * device_norms; `step` is filled in for each use. */
    struct dpb_norms norms;
    struct dpb_squares *squares; /* by tensor, likewise: of a rank that owns all */
    void *host_norms, *device_norms;
    uint32_t round; /* of `squares` */
    /* The step; its elements whose update was called; the step whose factors were found. */
    uint64_t landing, n_landed, normed;
    struct dpb_optimizer_witness witness;
    int64_t late_ns; /* see dpb_optimizer_late_ns */
};

/* The last range that does not begin behind arena element `at`, or the first. */
static uint64_t range_at(const struct dpb_range *ranges, uint64_t n, uint64_t at)
{
    uint64_t low = 0, high = n;
    while (high - low > 1) {
        const uint64_t middle = (low + high) / 2;
        *(ranges[middle].begin <= at ? &low : &high) = middle;
    }
    return low;
}

/* Bytes of one array of the state. */
static uint64_t array_bytes(const struct dpb_optimizer *optimizer)
{
    return optimizer->n_state * dpb_dtype_size(optimizer->args.weight_type);
}

/* Orders accesses of several threads: each sees all that came before. Other threads read the state
 * after another signal that the step is over. The state changes again after they have read it. */
static void note_change(struct dpb_optimizer *optimizer)
{
    __atomic_fetch_add(&optimizer->n_changes, 1, __ATOMIC_ACQ_REL);
}

/* ---- ranges -------------------------------------------------------------------------------- */

/* The state of arena element `at`, which lies in an owned range; NULL where the rule has none. */
static char *state_of(const struct dpb_optimizer *optimizer, uint64_t at)
{
    char *state =
        optimizer->args.device ? optimizer->device_state : (char *)optimizer->state.memory;
    if (!state)
        return NULL;
    const uint64_t i = range_at(optimizer->owned, optimizer->args.n_owned, at);
    const uint64_t element = optimizer->state_at[i] + (at - optimizer->owned[i].begin);
    return state + element * dpb_dtype_size(optimizer->args.weight_type);
}

static void *find_state(struct dpb_optimizer *optimizer, uint64_t element, uint32_t array)
{
    (void)__atomic_load_n(&optimizer->n_changes, __ATOMIC_ACQUIRE);
    return array < optimizer->n_arrays
               ? state_of(optimizer, element) + array * array_bytes(optimizer)
               : NULL;
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
    for (uint64_t i = n ? range_at(optimizer->owned, n, at) : 0;
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
    const uint64_t i = range_at(optimizer->decays, optimizer->n_decays, at);
    return i + (i < optimizer->n_decays && optimizer->decays[i].end <= at);
}

static dpb_update_kind kind_of(const struct dpb_optimizer *optimizer, bool plain)
{
    if (plain || optimizer->n_arrays == 0)
        return DPB_UPDATE_PLAIN;
    if (optimizer->settings.kind == DPB_ADAGRAD)
        return DPB_UPDATE_ADAGRAD;
    if (dpb_optimizer_has_moments(&optimizer->settings))
        return DPB_UPDATE_ADAM;
    if (optimizer->settings.kind == DPB_RMSPROP)
        return DPB_UPDATE_RMSPROP;
    return optimizer->settings.nesterov ? DPB_UPDATE_NESTEROV : DPB_UPDATE_MOMENTUM;
}

/* A launch copies the words before its updates read them; the next ones are written when it is
 * over. The words' type is double: a launch gives the bits that a step without graph gives. */
static dpb_status capture(struct dpb_optimizer *optimizer, struct dpb_queue *queue)
{
    if (!optimizer->args.device)
        return dpb_fail(DPB_USAGE, "an update is captured of weights that are on no device");
    return optimizer->args.device->ops->copy(
        queue, &optimizer->words->words, &optimizer->pinned->words, sizeof optimizer->words->words);
}

/* Adam's divisors of its moments in the update of these n elements; n = 0: in the next update.
 * Returns the update's number. An update of all owned elements ends before the next one begins,
 * however many pieces and threads there are. So the elements count the updates, also on servers
 * that make several in a step. */
static uint64_t correct(struct dpb_optimizer *optimizer, uint64_t n, double *first, double *second)
{
    const uint64_t before = __atomic_fetch_add(&optimizer->n_updated, n, __ATOMIC_RELAXED);
    const uint64_t number = before / optimizer->n_state + 1;
    *first = 1.0 - pow(optimizer->settings.beta1, (double)number);
    *second = 1.0 - pow(optimizer->settings.beta2, (double)number);
    return number;
}

static void replay(struct dpb_optimizer *optimizer, const struct dpb_step *step)
{
    double first = 1.0, second = 1.0;
    if (dpb_optimizer_has_moments(&optimizer->settings))
        correct(optimizer, optimizer->n_state, &first, &second);
    optimizer->pinned->words = (struct dpb_update_words){.rate = step->learning_rate,
                                                         .scale = step->scale,
                                                         .correction = first,
                                                         .second_correction = second};
}

/* Sets what rules with two arrays of state have beside the others. Returns the number of Adam's
 * update; 0: the update is not Adam's, or captured. */
static uint64_t fill_in_second(struct dpb_optimizer *optimizer, bool captured,
                               struct dpb_update *update)
{
    const struct dpb_optimizer_settings *settings = &optimizer->settings;
    const bool adam = update->kind == DPB_UPDATE_ADAM;
    if (!adam && update->kind != DPB_UPDATE_RMSPROP)
        return 0;
    update->second = (char *)update->state + array_bytes(optimizer);
    update->beta2 = adam ? settings->beta2 : settings->rms_decay;
    if (!adam)
        return 0;
    update->momentum = settings->beta1;
    update->decoupled = settings->decoupled_decay;
    return captured
               ? 0 /* each launch has words of its own */
               : correct(optimizer, update->n, &update->correction, &update->second_correction);
}

/* Without ranges that decay, and without a second array. */
static struct dpb_update update_of(const struct dpb_optimizer *optimizer, dpb_update_kind kind,
                                   struct dpb_range range, void *weights, const void *gradients,
                                   struct dpb_factors factors)
{
    return (struct dpb_update){.kind = kind,
                               .rate = factors.rate,
                               .scale = factors.scale,
                               .decay = factors.decay,
                               .momentum = optimizer->settings.momentum,
                               .epsilon = optimizer->settings.epsilon,
                               .n = range.end - range.begin,
                               .first = range.begin,
                               .weight_type = optimizer->args.weight_type,
                               .gradient_type = optimizer->args.gradient_type,
                               .weights = weights,
                               .state = state_of(optimizer, range.begin),
                               .gradients = gradients};
}

static struct dpb_factors factors_of(const struct dpb_optimizer *optimizer,
                                     const struct dpb_step *step)
{
    const bool plain = step && is_plain(step);
    return (struct dpb_factors){.rate = step ? step->learning_rate : 0.0,
                                .scale = step ? step->scale : 0.0,
                                .decay = plain ? 0.0 : optimizer->settings.weight_decay};
}

/* `step` NULL: by the words, within a capture. `by`: factors by norms, of the device where the
 * weights are there; NULL: the step's. */
static dpb_status apply(struct dpb_optimizer *optimizer, struct dpb_queue *queue,
                        struct dpb_range range, void *weights, const void *gradients,
                        const struct dpb_step *step, const struct dpb_factors *by)
{
    const bool plain = step && is_plain(step);
    const bool here = by && !optimizer->args.device;
    const struct dpb_factors factors = here ? *by : factors_of(optimizer, step);
    uint64_t decay = decay_at(optimizer, range.begin), end = decay;
    while (end < optimizer->n_decays && optimizer->decays[end].begin < range.end)
        end++;
    struct dpb_update update =
        update_of(optimizer, kind_of(optimizer, plain), range, weights, gradients, factors);
    update.words = step ? NULL : &optimizer->words->words;
    update.factors = here ? NULL : by;
    update.decays = optimizer->decays + decay;
    update.n_decays = end - decay;
    update.not_finite = optimizer->args.not_finite;
    const uint64_t number = fill_in_second(optimizer, !step, &update);
    if (optimizer->args.device) {
        update.decays = optimizer->device_decays + decay;
        update.not_finite = optimizer->args.not_finite ? &optimizer->words->found : NULL;
        return optimizer->args.device->ops->update(queue, &update);
    }
    if (optimizer->witness.see && !plain)
        optimizer->witness.see(optimizer->witness.owner, step, &update, number);
    dpb_update_apply(&update);
    return DPB_OK;
}

/* ---- updates by norms ---------------------------------------------------------------------- */

/*
 * clip_norm, X: the mean gradient g of all weights is scaled by min(1, X / (||g|| + 1e-6)), as
 * PyTorch's clip_grad_norm_ does it.
 *
 * LARS (You, Gitman, Ginsburg: Large Batch Training of Convolutional Networks. 2017): a tensor w
 * that decays has the local rate  l = trust ||w|| / (||g|| + decay ||w||),  others have 1, as has a
 * tensor whose ||w|| or ||g|| is 0. Then v = momentum * v + rate * l * (g + decay * w); w -= v.
 *
 * LAMB (You et al.: Large Batch Optimization for Deep Learning. 2020): r is Adam's way with its
 * decay apart; w -= rate * ||w|| / ||r|| * r. The ratio is 1 where a norm is 0, and for tensors
 * that do not decay: the practice of BERT's training, where the paper scales all.
 *
 * Norms are float64, in one order (norms.h). Where a rank owns all elements, equal mean gradients
 * give equal bits, whatever the strategy and the device. Where ranks own parts, the parts' sums are
 * added in the order of the owners: all owners have equal bits.
 */

static char *weights_at(const struct dpb_optimizer *optimizer, uint64_t element)
{
    return (char *)optimizer->args.weights + element * dpb_dtype_size(optimizer->args.weight_type);
}

static const char *gradients_at(const struct dpb_optimizer *optimizer, uint64_t element)
{
    return (const char *)optimizer->args.gradients +
           element * dpb_dtype_size(optimizer->args.gradient_type);
}

/* The elements of `range` up to the end of the tensor where it begins, and of the gap behind. */
static struct dpb_range first_tensor(const struct dpb_graph *graph, struct dpb_range range,
                                     uint32_t *tensor)
{
    const uint32_t next = (*tensor = dpb_graph_tensor_at(graph, range.begin)) + 1;
    const uint64_t end = next < graph->n_tensors ? graph->tensors[next].offset : graph->n_elements;
    return (struct dpb_range){range.begin, end < range.end ? end : range.end};
}

/* Adam's way is worked out twice: here for its norm, then again where the weights go it. */
static double way_squares(struct dpb_optimizer *optimizer, const struct dpb_norm_piece *piece)
{
    const struct dpb_range range = {piece->begin, piece->begin + piece->n};
    struct dpb_update update =
        update_of(optimizer, DPB_UPDATE_ADAM, range, weights_at(optimizer, piece->begin),
                  gradients_at(optimizer, piece->begin), optimizer->norms.factors[piece->tensor]);
    fill_in_second(optimizer, true, &update);
    correct(optimizer, 0, &update.correction, &update.second_correction);
    return dpb_update_squares(&update);
}

static void take_squares(struct dpb_optimizer *optimizer, struct dpb_squares *own)
{
    const struct dpb_optimizer_args *args = &optimizer->args;
    const struct dpb_norms *norms = &optimizer->norms;
    memset(own, 0, norms->n_tensors * sizeof *own);
    for (uint32_t i = 0; i < norms->n_pieces; i++) {
        const struct dpb_norm_piece *piece = &norms->pieces[i];
        struct dpb_squares *sum = &own[piece->tensor];
        if (!norms->way)
            sum->gradients += dpb_vec_squares(args->gradient_type,
                                              gradients_at(optimizer, piece->begin), piece->n);
        else if (piece->decays)
            sum->gradients += way_squares(optimizer, piece);
        if (norms->weights && piece->decays)
            sum->weights +=
                dpb_vec_squares(args->weight_type, weights_at(optimizer, piece->begin), piece->n);
    }
}

/* Sums are in the order of the owners, so that all have the same bits. LAMB's second round is of
 * Adam's way. */
static void find_factors(const struct dpb_norms *norms, const struct dpb_squares *all, uint32_t n)
{
    struct dpb_factors every = {norms->step.rate, norms->step.scale, norms->step.decay};
    double gradients = 0.0;
    for (uint32_t t = 0; t < norms->n_tensors; t++)
        gradients += dpb_norm_sum(all, n, norms->n_tensors, t).gradients;
    every.scale *= dpb_norm_clipped(norms->rule.clip_norm, every.scale, gradients);
    for (uint32_t t = 0; t < norms->n_tensors; t++)
        norms->factors[t] =
            dpb_norm_factors(&norms->rule, dpb_norm_sum(all, n, norms->n_tensors, t),
                             norms->way ? norms->factors[t] : every);
}

/* The step as a device reads it: all of the arenas and of the state. */
static void fill_in_norms(struct dpb_optimizer *optimizer, const struct dpb_step *step)
{
    const bool way = optimizer->norms.way;
    struct dpb_update *update = &optimizer->norms.step;
    *update =
        update_of(optimizer, way ? DPB_UPDATE_ADAM : DPB_UPDATE_PLAIN, optimizer->owned[0],
                  optimizer->args.weights, optimizer->args.gradients, factors_of(optimizer, step));
    update->words = step ? NULL : &optimizer->words->words;
    if (way)
        fill_in_second(optimizer, true, update);
    if (way && step)
        correct(optimizer, 0, &update->correction, &update->second_correction);
}

/* The step's number, or that of all captures. */
static uint64_t number_of(const struct dpb_step *step)
{
    return step ? step->step : UINT64_MAX - 1;
}

static dpb_status squares(struct dpb_optimizer *optimizer, struct dpb_queue *queue,
                          const struct dpb_step *step, const struct dpb_squares *all, uint32_t n,
                          struct dpb_squares *own, bool *more)
{
    const uint32_t last = optimizer->settings.kind == DPB_LAMB;
    struct dpb_norms *norms = &optimizer->norms;
    const struct dpb_device_arenas *device = optimizer->args.device;
    (void)__atomic_load_n(&optimizer->n_changes, __ATOMIC_ACQUIRE);
    fill_in_norms(optimizer, step);
    if (all && !device)
        find_factors(norms, all, n);
    else if (all)
        DPB_TRY(device->ops->factors(queue, norms, all, n));
    optimizer->round = all ? optimizer->round + 1 : 0;
    *more = optimizer->round <= last;
    if (!*more) {
        optimizer->normed = number_of(step);
        return DPB_OK;
    }
    norms->way = optimizer->round > 0;
    norms->weights = norms->way || optimizer->settings.kind == DPB_LARS;
    fill_in_norms(optimizer, step);
    if (device)
        return device->ops->squares(queue, norms, own);
    take_squares(optimizer, own);
    return DPB_OK;
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

/* Tensor by tensor, by the factors found. A plain step, and on a device a step that is clipped
 * alone, has one factor for all tensors, and there each update is a launch. */
static dpb_status apply_by_tensor(struct dpb_optimizer *optimizer, struct dpb_queue *queue,
                                  struct dpb_range range, const struct dpb_step *step)
{
    const bool plain = step && is_plain(step);
    const bool one =
        optimizer->args.device && (plain || !dpb_optimizer_by_tensor(&optimizer->settings));
    while (range.begin < range.end) {
        uint32_t t = 0;
        const struct dpb_range piece = one ? range : first_tensor(optimizer->args.graph, range, &t);
        DPB_TRY(apply(optimizer, queue, piece, weights_at(optimizer, piece.begin),
                      gradients_at(optimizer, piece.begin), step,
                      plain ? NULL : &optimizer->norms.factors[t]));
        range.begin = piece.end;
    }
    return DPB_OK;
}

/* Of a rank that owns all elements. */
static dpb_status apply_all(struct dpb_optimizer *optimizer, struct dpb_queue *queue,
                            const struct dpb_step *step)
{
    bool more = true;
    for (const struct dpb_squares *all = NULL; more; all = optimizer->squares)
        DPB_TRY(squares(optimizer, queue, step, all, 1, optimizer->squares, &more));
    for (uint64_t i = 0; i < optimizer->args.n_owned; i++)
        DPB_TRY(apply_by_tensor(optimizer, queue, optimizer->owned[i], step));
    return DPB_OK;
}

/* Where this rank owns all, the last range of a step to be updated brings the update of all. So
 * does the last range of a proof's step, which is plain: a proof sees the behaviour of training. */
static dpb_status land(struct dpb_optimizer *optimizer, struct dpb_queue *queue,
                       struct dpb_range range, const struct dpb_step *step)
{
    const uint64_t all = optimizer->args.graph->n_elements, before = optimizer->n_landed;
    const uint64_t number = number_of(step);
    const bool part = optimizer->n_state < all;
    /* Servers, and captures, make several updates of one number. */
    const bool again = before == all && (!step || dpb_world.role == DPB_SERVER);
    const bool begins = optimizer->landing != number || again;
    if (part && optimizer->normed == number)
        return apply_by_tensor(optimizer, queue, range, step);
    optimizer->n_landed = (begins ? 0 : before) + range.end - range.begin;
    optimizer->landing = number;
    if (!part && (!begins || before == 0 || before == all) && optimizer->n_landed <= all)
        return optimizer->n_landed == all ? apply_all(optimizer, queue, step) : DPB_OK;
    dpb_fail(DPB_FAILED,
             "the strategy updates %llu of %llu elements in a step, though it has the capability "
             "DPB_COMM_WHOLE; a part may come behind the sums of squares of all owners",
             (unsigned long long)(begins && !part ? before : optimizer->n_landed),
             (unsigned long long)all);
    refuse();
    return DPB_FAILED;
}

/* An update lasts as long as that of the accelerator that is emulated. */
static void pace(struct dpb_optimizer *optimizer, int64_t began_ns, uint64_t n)
{
    const int64_t until_ns = began_ns + llround(optimizer->args.element_ns * (double)n),
                  late_ns = dpb_now_ns() - until_ns;
    const struct timespec until = {.tv_sec = until_ns / INT64_C(1000000000),
                                   .tv_nsec = until_ns % INT64_C(1000000000)};
    if (late_ns > 0)
        __atomic_fetch_add(&optimizer->late_ns, late_ns, __ATOMIC_RELAXED);
    else
        while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, NULL) == EINTR)
            ;
}

int64_t dpb_optimizer_late_ns(struct dpb_optimizer *optimizer)
{
    return optimizer ? __atomic_exchange_n(&optimizer->late_ns, 0, __ATOMIC_RELAXED) : 0;
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
    const bool by_norms = optimizer->norms.n_tensors > 0;
    if (by_norms && strays(optimizer, range, weights, gradients))
        return DPB_FAILED;
    if (optimizer->args.device)
        return by_norms ? land(optimizer, queue, range, step)
                        : apply(optimizer, queue, range, weights, gradients, step, NULL);
    const int64_t began_ns = dpb_now_ns();
    (void)__atomic_load_n(&optimizer->n_changes, __ATOMIC_ACQUIRE);
    const dpb_status status = by_norms
                                  ? land(optimizer, queue, range, step)
                                  : apply(optimizer, queue, range, weights, gradients, step, NULL);
    note_change(optimizer);
    if (optimizer->args.element_ns > 0)
        pace(optimizer, began_ns, range.end - range.begin);
    dpb_account_span(bucket, DPB_PHASE_UPDATE, began_ns, dpb_now_ns());
    return status;
}

const struct dpb_optimizer_ops dpb_optimizers = {.update = update,
                                                 .squares = squares,
                                                 .state = find_state,
                                                 .capture = capture,
                                                 .replay = replay};

uint32_t dpb_optimizer_state_names(const struct dpb_optimizer_settings *settings,
                                   const char *names[DPB_OPTIMIZER_STATES])
{
    static const char *const of[][DPB_OPTIMIZER_STATES] = {
        [DPB_SGD] = {"momentum_buffer"},
        [DPB_ADAGRAD] = {"sum"},
        [DPB_ADAM] = {"exp_avg", "exp_avg_sq"},
        [DPB_ADAMW] = {"exp_avg", "exp_avg_sq"},
        [DPB_RMSPROP] = {"square_avg", "velocity"},
        [DPB_LARS] = {"velocity"},
        [DPB_LAMB] = {"exp_avg", "exp_avg_sq"}};
    const bool velocity = settings->kind == DPB_SGD || settings->kind == DPB_LARS;
    const bool none = velocity && settings->momentum == 0.0;
    uint32_t n = 0;
    for (uint32_t i = 0; i < DPB_OPTIMIZER_STATES; i++) {
        names[i] = none ? NULL : of[settings->kind][i];
        n += names[i] != NULL;
    }
    return n;
}

uint32_t dpb_optimizer_states(const struct dpb_optimizer_settings *settings)
{
    const char *names[DPB_OPTIMIZER_STATES];
    return dpb_optimizer_state_names(settings, names);
}

uint64_t dpb_optimizer_bytes(const struct dpb_optimizer *optimizer)
{
    return optimizer ? optimizer->n_arrays * array_bytes(optimizer) : 0;
}

/* RMSProp's mean square begins at 1, as in TensorFlow; all other state begins at 0. */
static bool begins_at_1(const struct dpb_optimizer *optimizer)
{
    return optimizer->settings.kind == DPB_RMSPROP;
}

static void fill_with_1(dpb_dtype type, void *state, uint64_t n)
{
    for (uint64_t i = 0; i < n; i++)
        if (type == DPB_FP64)
            ((double *)state)[i] = 1.0;
        else
            ((float *)state)[i] = 1.0F;
}

/* A tensor and the gap behind it; neighbours are one range. */
static dpb_status list_decays(struct dpb_optimizer *optimizer)
{
    const struct dpb_graph *graph = optimizer->args.graph;
    optimizer->decays = calloc(graph->n_tensors + 1u, sizeof *optimizer->decays);
    DPB_TRY(dpb_allocated(optimizer->decays));
    for (uint32_t t = 0; t < graph->n_tensors; t++) {
        uint64_t begin = graph->tensors[t].offset;
        uint64_t end = t + 1 < graph->n_tensors ? graph->tensors[t + 1].offset : graph->n_elements;
        uint64_t n = optimizer->n_decays;
        if (!graph->tensors[t].decays)
            continue;
        if (n > 0 && optimizer->decays[n - 1].end == begin)
            optimizer->decays[n - 1].end = end;
        else
            optimizer->decays[optimizer->n_decays++] = (struct dpb_range){begin, end};
    }
    return DPB_OK;
}

/* ---- the memory of norms -------------------------------------------------------------------- */

static uint64_t norms_bytes(const struct dpb_norms *norms)
{
    return norms->n_pieces * (sizeof *norms->pieces + sizeof *norms->sums) +
           norms->n_tensors * (sizeof *norms->factors + sizeof(struct dpb_squares)) +
           (norms->n_tensors + 1) * sizeof *norms->first_pieces;
}

/* Arrays lie one behind the other, those of 32 bits last. */
static void place_norms(struct dpb_optimizer *optimizer, void *memory)
{
    struct dpb_norms *norms = &optimizer->norms;
    struct dpb_norm_piece *pieces = memory;
    norms->pieces = pieces;
    norms->sums = (struct dpb_squares *)(void *)(pieces + norms->n_pieces);
    norms->factors = (struct dpb_factors *)(void *)(norms->sums + norms->n_pieces);
    optimizer->squares = (struct dpb_squares *)(void *)(norms->factors + norms->n_tensors);
    norms->first_pieces = (uint32_t *)(void *)(optimizer->squares + norms->n_tensors);
}

/* Cuts the owned parts of tensors; `pieces` NULL: counts them alone. */
static uint32_t cut_pieces(const struct dpb_optimizer *optimizer, struct dpb_norm_piece *pieces)
{
    const struct dpb_graph *graph = optimizer->args.graph;
    uint32_t n = 0, t;
    for (uint64_t i = 0; i < optimizer->args.n_owned; i++)
        for (struct dpb_range rest = optimizer->owned[i]; rest.begin < rest.end;) {
            const struct dpb_range part = first_tensor(graph, rest, &t);
            const struct dpb_tensor *tensor = &graph->tensors[t];
            const uint64_t ends = tensor->offset + tensor->n_elements;
            const uint64_t end = part.end < ends ? part.end : ends;
            for (uint64_t at = part.begin; at < end; at += DPB_NORM_PIECE, n++)
                if (pieces)
                    pieces[n] = (struct dpb_norm_piece){
                        .begin = at,
                        .state = optimizer->state_at[i] + (at - optimizer->owned[i].begin),
                        .n = (uint32_t)(end - at < DPB_NORM_PIECE ? end - at : DPB_NORM_PIECE),
                        .tensor = t,
                        .decays = tensor->decays};
            rest.begin = part.end;
        }
    return n;
}

static dpb_status make_norms(struct dpb_optimizer *optimizer)
{
    const struct dpb_optimizer_settings *settings = &optimizer->settings;
    struct dpb_norms *norms = &optimizer->norms;
    *norms = (struct dpb_norms){.rule = {.kind = settings->kind == DPB_LARS   ? DPB_NORM_LARS
                                                 : settings->kind == DPB_LAMB ? DPB_NORM_LAMB
                                                                              : DPB_NORM_CLIP,
                                         .clip_norm = settings->clip_norm,
                                         .trust = settings->trust,
                                         .decay = settings->weight_decay},
                                .n_pieces = cut_pieces(optimizer, NULL),
                                .n_tensors = optimizer->args.graph->n_tensors};
    optimizer->host_norms = calloc(1, norms_bytes(norms));
    DPB_TRY(dpb_allocated(optimizer->host_norms));
    place_norms(optimizer, optimizer->host_norms);
    cut_pieces(optimizer, optimizer->host_norms);
    uint32_t *first = (uint32_t *)(void *)(optimizer->squares + norms->n_tensors), piece = 0;
    for (uint32_t t = 0; t <= norms->n_tensors; first[t++] = piece)
        while (piece < norms->n_pieces && norms->pieces[piece].tensor < t)
            piece++;
    return DPB_OK;
}

/* ---- with arenas on a device --------------------------------------------------------------- */

/* Copies some from the host, then all that the device has, twice as much each time. */
static dpb_status fill_device_with_1(const struct dpb_optimizer *optimizer)
{
    const struct dpb_queue_ops *ops = optimizer->args.device->ops;
    const dpb_dtype type = optimizer->args.weight_type;
    const uint64_t bytes = array_bytes(optimizer);
    double first[512];
    fill_with_1(type, first, sizeof first / dpb_dtype_size(type));
    for (uint64_t done = 0, n; done < bytes; done += n) {
        n = done > 0 ? done : sizeof first;
        n = n < bytes - done ? n : bytes - done;
        DPB_TRY(ops->copy(optimizer->args.queue, optimizer->device_state + done,
                          done > 0 ? (const void *)optimizer->device_state : first, n));
    }
    return DPB_OK;
}

static dpb_status norms_to_device(struct dpb_optimizer *optimizer)
{
    const struct dpb_device_arenas *device = optimizer->args.device;
    const uint64_t bytes = norms_bytes(&optimizer->norms);
    DPB_TRY(device->ops->allocate(device->device, "norms of the tensors", bytes, false,
                                  &optimizer->device_norms));
    place_norms(optimizer, optimizer->device_norms);
    return device->ops->copy(optimizer->args.queue, optimizer->device_norms, optimizer->host_norms,
                             bytes);
}

static dpb_status create_on_device(struct dpb_optimizer *optimizer)
{
    const struct dpb_queue_ops *ops = optimizer->args.device->ops;
    void *device = optimizer->args.device->device, *memory = NULL;
    const uint64_t bytes = optimizer->n_decays * sizeof *optimizer->decays;
    const uint64_t state_bytes = dpb_optimizer_bytes(optimizer);
    DPB_TRY(ops->allocate(device, "ranges with weight decay", bytes + 1, false, &memory));
    optimizer->device_decays = memory;
    DPB_TRY(ops->copy(optimizer->args.queue, memory, optimizer->decays, bytes));
    DPB_TRY(ops->allocate(device, "words", sizeof *optimizer->words, false, &memory));
    optimizer->words = memory;
    DPB_TRY(ops->pin(device, sizeof *optimizer->pinned, &memory));
    optimizer->pinned = memory;
    if (state_bytes > 0) {
        DPB_TRY(ops->allocate(device, "the optimizer's state", state_bytes, false, &memory));
        optimizer->device_state = memory;
        if (begins_at_1(optimizer))
            DPB_TRY(fill_device_with_1(optimizer));
    }
    if (optimizer->norms.n_tensors > 0)
        DPB_TRY(norms_to_device(optimizer));
    return ops->drain(optimizer->args.queue);
}

static void destroy_on_device(struct dpb_optimizer *optimizer)
{
    const struct dpb_queue_ops *ops = optimizer->args.device->ops;
    void *device = optimizer->args.device->device;
    ops->release(device, optimizer->device_decays);
    ops->release(device, optimizer->device_state);
    ops->release(device, optimizer->words);
    ops->release(device, optimizer->device_norms);
    ops->unpin(device, optimizer->pinned);
}

dpb_status dpb_optimizer_fetch(struct dpb_optimizer *optimizer)
{
    if (!optimizer || !optimizer->device_state)
        return DPB_OK;
    const struct dpb_queue_ops *ops = optimizer->args.device->ops;
    DPB_TRY(ops->copy(optimizer->args.queue, optimizer->state.memory, optimizer->device_state,
                      dpb_optimizer_bytes(optimizer)));
    return ops->drain(optimizer->args.queue);
}

static void note_seen(const struct dpb_optimizer *optimizer)
{
    uint64_t none = 0, seen = __atomic_load_n(&optimizer->pinned->found, __ATOMIC_RELAXED);
    if (seen != 0 && optimizer->args.not_finite)
        __atomic_compare_exchange_n(optimizer->args.not_finite, &none, seen, false,
                                    __ATOMIC_RELAXED, __ATOMIC_RELAXED);
}

dpb_status dpb_optimizer_watch(struct dpb_optimizer *optimizer, struct dpb_event *done)
{
    if (!optimizer || !optimizer->args.device)
        return DPB_OK;
    const struct dpb_queue_ops *ops = optimizer->args.device->ops;
    note_seen(optimizer);
    DPB_TRY(ops->await(optimizer->args.queue, done));
    return ops->copy(optimizer->args.queue, &optimizer->pinned->found, &optimizer->words->found,
                     sizeof optimizer->pinned->found);
}

dpb_status dpb_optimizer_find(struct dpb_optimizer *optimizer)
{
    if (!optimizer || !optimizer->args.device)
        return DPB_OK;
    DPB_TRY(optimizer->args.device->ops->drain(optimizer->args.queue));
    note_seen(optimizer);
    return DPB_OK;
}

/* ---- life ---------------------------------------------------------------------------------- */

/* On a device the mapping is for checkpoints alone. */
static dpb_status make_state(struct dpb_optimizer *optimizer)
{
    DPB_TRY(list_decays(optimizer));
    if (dpb_optimizer_needs_norms(&optimizer->settings)) {
        const uint64_t all = optimizer->args.graph->n_elements;
        if (optimizer->n_state != all && !optimizer->args.sharded)
            return dpb_fail(DPB_FAILED,
                            "the strategy owns %llu of %llu elements on this rank and has not the "
                            "capability DPB_COMM_WHOLE_SHARDS: norms are of whole tensors",
                            (unsigned long long)optimizer->n_state, (unsigned long long)all);
        DPB_TRY(make_norms(optimizer));
    }
    if (optimizer->args.device)
        DPB_TRY(create_on_device(optimizer));
    if (dpb_optimizer_bytes(optimizer) == 0 || (optimizer->args.device && !optimizer->args.saved))
        return DPB_OK;
    DPB_TRY(dpb_mapping_create("optimizer", dpb_optimizer_bytes(optimizer), &optimizer->state));
    if (!optimizer->args.device && begins_at_1(optimizer))
        fill_with_1(optimizer->args.weight_type, optimizer->state.memory, optimizer->n_state);
    return DPB_OK;
}

dpb_status dpb_optimizer_create(const struct dpb_optimizer_args *args,
                                struct dpb_optimizer **optimizer)
{
    if (args->n_owned == 0) {
        *optimizer = NULL;
        return DPB_OK;
    }
    struct dpb_optimizer *made = calloc(1, sizeof *made);
    size_t ranges = (size_t)args->n_owned;
    if (made) {
        made->owned = malloc(ranges * sizeof *made->owned);
        made->state_at = malloc(ranges * sizeof *made->state_at);
    }
    if (!made || !made->owned || !made->state_at) {
        dpb_optimizer_destroy(made);
        return dpb_fail(DPB_NO_MEMORY, "no memory for the optimizer's %zu ranges", ranges);
    }
    memcpy(made->owned, args->owned, ranges * sizeof *made->owned);
    made->settings = *args->settings;
    made->args = *args;
    made->args.settings = &made->settings;
    made->args.owned = made->owned;
    made->n_arrays = dpb_optimizer_states(args->settings);
    made->landing = made->normed = UINT64_MAX;
    for (uint64_t i = 0; i < args->n_owned; i++) {
        made->state_at[i] = made->n_state;
        made->n_state += made->owned[i].end - made->owned[i].begin;
    }
    dpb_status status = make_state(made);
    if (status == DPB_OK)
        *optimizer = made;
    else
        dpb_optimizer_destroy(made);
    return status;
}

void dpb_optimizer_destroy(struct dpb_optimizer *optimizer)
{
    if (!optimizer)
        return;
    if (optimizer->args.device)
        destroy_on_device(optimizer);
    dpb_mapping_destroy(&optimizer->state);
    free(optimizer->host_norms);
    free(optimizer->decays);
    free(optimizer->owned);
    free(optimizer->state_at);
    free(optimizer);
}

void dpb_optimizer_show(struct dpb_optimizer *optimizer, struct dpb_optimizer_witness witness)
{
    if (optimizer)
        optimizer->witness = witness;
}

void dpb_optimizer_was_read(struct dpb_optimizer *optimizer)
{
    note_change(optimizer);
}

struct dpb_mapping dpb_optimizer_mapping(const struct dpb_optimizer *optimizer)
{
    if (!optimizer)
        return (struct dpb_mapping){.fd = -1};
    (void)__atomic_load_n(&optimizer->n_changes, __ATOMIC_ACQUIRE);
    return optimizer->state;
}

/* One array's ranges. */
static dpb_status load_array(struct dpb_optimizer *optimizer, const char *arena, uint32_t array)
{
    const size_t element = dpb_dtype_size(optimizer->args.weight_type);
    for (uint64_t i = 0; i < optimizer->args.n_owned; i++) {
        const struct dpb_range *owned = &optimizer->owned[i];
        const char *from = arena + owned->begin * element;
        const uint64_t bytes = (owned->end - owned->begin) * element;
        const uint64_t at = array * array_bytes(optimizer) + optimizer->state_at[i] * element;
        if (optimizer->args.device)
            DPB_TRY(optimizer->args.device->ops->copy(optimizer->args.queue,
                                                      optimizer->device_state + at, from, bytes));
        else
            memcpy((char *)optimizer->state.memory + at, from, bytes);
    }
    return DPB_OK;
}

dpb_status dpb_optimizer_load(struct dpb_optimizer *optimizer, const void *arenas, uint64_t updates)
{
    const uint64_t arena_bytes =
        optimizer->args.graph->n_elements * dpb_dtype_size(optimizer->args.weight_type);
    for (uint32_t i = 0; i < optimizer->n_arrays; i++)
        DPB_TRY(load_array(optimizer, (const char *)arenas + i * arena_bytes, i));
    optimizer->n_updated = updates * optimizer->n_state;
    note_change(optimizer);
    return optimizer->args.device ? optimizer->args.device->ops->drain(optimizer->args.queue)
                                  : DPB_OK;
}
