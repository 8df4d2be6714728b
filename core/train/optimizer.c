/* optimizer.c - SGD and Adagrad on ranges of the arena: see optimizer.h. */
#include "train/optimizer.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/vec.h"
#include "dpbench/random.h"
#include "graph/graph.h"
#include "train/account.h"

struct dpb_optimizer {
    const struct dpb_graph *graph;
    struct dpb_optimizer_settings settings;
    dpb_dtype weight_type, gradient_type;
    struct dpb_range *owned;
    uint64_t *state_at; /* where the state of each owned range begins, in elements */
    uint64_t n_owned, n_state;
    struct dpb_mapping state; /* momentum or sum of squares; zero bytes: none needed */
    uint64_t *not_finite;
    /* With arenas on a device: there is the state, which elements decay, and what was found. */
    const struct dpb_device_arenas *device;
    struct dpb_queue *queue;
    float *device_state;
    struct dpb_range *decays, *device_decays;
    uint64_t n_decays;
    uint64_t *found, *seen; /* the device's word; its copy in pinned memory */
    /* Of a captured step: the device's words, and, pinned, what each launch copies there. */
    struct dpb_update_words *words, *next_words;
    uint64_t n_changes; /* of the state, for the order of memory: see dpb_optimizer_mapping */
};

const char *dpb_optimizer_state_name(const struct dpb_optimizer_settings *settings)
{
    if (settings->kind == DPB_ADAGRAD)
        return "sum";
    return settings->momentum != 0.0 ? "momentum_buffer" : NULL;
}

static uint64_t state_bytes(const struct dpb_optimizer *optimizer)
{
    return dpb_optimizer_state_name(&optimizer->settings)
               ? optimizer->n_state * dpb_dtype_size(optimizer->weight_type)
               : 0;
}

/* ---- with arenas on a device --------------------------------------------------------------- */

/* A tensor and the gap behind it; neighbours are one range. */
static dpb_status list_decays(struct dpb_optimizer *optimizer)
{
    const struct dpb_graph *graph = optimizer->graph;
    optimizer->decays = calloc(graph->n_tensors + 1u, sizeof *optimizer->decays);
    if (!optimizer->decays)
        return dpb_fail(DPB_NO_MEMORY, "no memory for the ranges with weight decay");
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

static dpb_status create_on_device(struct dpb_optimizer *optimizer)
{
    const struct dpb_queue_ops *ops = optimizer->device->ops;
    void *device = optimizer->device->device, *memory = NULL;
    DPB_TRY(list_decays(optimizer));
    uint64_t bytes = optimizer->n_decays * sizeof *optimizer->decays;
    DPB_TRY(ops->allocate(device, "ranges with weight decay", bytes + 1, false, &memory));
    optimizer->device_decays = memory;
    DPB_TRY(ops->copy(optimizer->queue, memory, optimizer->decays, bytes));
    DPB_TRY(ops->allocate(device, "words", sizeof *optimizer->found, false, &memory));
    optimizer->found = memory;
    DPB_TRY(ops->pin(device, sizeof *optimizer->seen, &memory));
    optimizer->seen = memory;
    DPB_TRY(ops->allocate(device, "words", sizeof *optimizer->words, false, &memory));
    optimizer->words = memory;
    DPB_TRY(ops->pin(device, sizeof *optimizer->next_words, &memory));
    optimizer->next_words = memory;
    if (state_bytes(optimizer) > 0) {
        DPB_TRY(
            ops->allocate(device, "the optimizer's state", state_bytes(optimizer), false, &memory));
        optimizer->device_state = memory;
    }
    return ops->drain(optimizer->queue);
}

static void destroy_on_device(struct dpb_optimizer *optimizer)
{
    const struct dpb_queue_ops *ops = optimizer->device->ops;
    void *device = optimizer->device->device;
    ops->release(device, optimizer->device_decays);
    ops->release(device, optimizer->device_state);
    ops->release(device, optimizer->found);
    ops->release(device, optimizer->words);
    ops->unpin(device, optimizer->seen);
    ops->unpin(device, optimizer->next_words);
    free(optimizer->decays);
}

dpb_status dpb_optimizer_fetch(struct dpb_optimizer *optimizer)
{
    if (!optimizer || !optimizer->device_state)
        return DPB_OK;
    const struct dpb_queue_ops *ops = optimizer->device->ops;
    DPB_TRY(ops->copy(optimizer->queue, optimizer->state.memory, optimizer->device_state,
                      state_bytes(optimizer)));
    return ops->drain(optimizer->queue);
}

static void note_seen(const struct dpb_optimizer *optimizer)
{
    uint64_t none = 0, seen = __atomic_load_n(optimizer->seen, __ATOMIC_RELAXED);
    if (seen != 0 && optimizer->not_finite)
        __atomic_compare_exchange_n(optimizer->not_finite, &none, seen, false, __ATOMIC_RELAXED,
                                    __ATOMIC_RELAXED);
}

dpb_status dpb_optimizer_watch(struct dpb_optimizer *optimizer, struct dpb_event *done)
{
    if (!optimizer || !optimizer->device)
        return DPB_OK;
    const struct dpb_queue_ops *ops = optimizer->device->ops;
    note_seen(optimizer);
    DPB_TRY(ops->await(optimizer->queue, done));
    return ops->copy(optimizer->queue, optimizer->seen, optimizer->found, sizeof *optimizer->seen);
}

dpb_status dpb_optimizer_find(struct dpb_optimizer *optimizer)
{
    if (!optimizer || !optimizer->device)
        return DPB_OK;
    DPB_TRY(optimizer->device->ops->drain(optimizer->queue));
    note_seen(optimizer);
    return DPB_OK;
}

/* ---- life ---------------------------------------------------------------------------------- */

/* On a device the mapping is for checkpoints alone. */
static dpb_status make_state(struct dpb_optimizer *optimizer, bool saved)
{
    if (optimizer->device)
        DPB_TRY(create_on_device(optimizer));
    if (state_bytes(optimizer) == 0 || (optimizer->device && !saved))
        return DPB_OK;
    return dpb_mapping_create("optimizer", state_bytes(optimizer), &optimizer->state);
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
    made->graph = args->graph;
    made->settings = *args->settings;
    made->weight_type = args->weight_type;
    made->gradient_type = args->gradient_type;
    made->n_owned = args->n_owned;
    made->not_finite = args->not_finite;
    memcpy(made->owned, args->owned, ranges * sizeof *made->owned);
    for (uint64_t i = 0; i < made->n_owned; i++) {
        made->state_at[i] = made->n_state;
        made->n_state += made->owned[i].end - made->owned[i].begin;
    }
    made->device = args->device;
    made->queue = args->queue;
    dpb_status status = make_state(made, args->saved);
    if (status != DPB_OK) {
        dpb_optimizer_destroy(made);
        return status;
    }
    *optimizer = made;
    return DPB_OK;
}

void dpb_optimizer_destroy(struct dpb_optimizer *optimizer)
{
    if (!optimizer)
        return;
    if (optimizer->device)
        destroy_on_device(optimizer);
    dpb_mapping_destroy(&optimizer->state);
    free(optimizer->owned);
    free(optimizer->state_at);
    free(optimizer);
}

/* Other threads read the state when they have heard by other ways that the step is over, and it
 * changes again when they are through: whoever comes next sees all that was done before. */
static void note_change(struct dpb_optimizer *optimizer)
{
    __atomic_fetch_add(&optimizer->n_changes, 1, __ATOMIC_ACQ_REL);
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

dpb_status dpb_optimizer_load(struct dpb_optimizer *optimizer, const void *arena)
{
    size_t element = dpb_dtype_size(optimizer->weight_type);
    for (uint64_t i = 0; state_bytes(optimizer) > 0 && i < optimizer->n_owned; i++) {
        const struct dpb_range *owned = &optimizer->owned[i];
        const char *from = (const char *)arena + owned->begin * element;
        uint64_t at = optimizer->state_at[i], bytes = (owned->end - owned->begin) * element;
        if (optimizer->device)
            DPB_TRY(optimizer->device->ops->copy(optimizer->queue, optimizer->device_state + at,
                                                 from, bytes));
        else
            memcpy((char *)optimizer->state.memory + at * element, from, bytes);
    }
    note_change(optimizer);
    return optimizer->device ? optimizer->device->ops->drain(optimizer->queue) : DPB_OK;
}

/* ---- the rules, once for each weight type -------------------------------------------------- */

struct rule {
    double rate, scale, decay, momentum, epsilon;
};

#define DEFINE_RULES(real, root)                                                                   \
    static void plain_##real(const struct rule *rule, real *restrict w, const real *restrict g,    \
                             uint64_t n)                                                           \
    {                                                                                              \
        const real rate = (real)rule->rate, scale = (real)rule->scale, decay = (real)rule->decay;  \
        for (uint64_t i = 0; i < n; i++)                                                           \
            w[i] -= rate * (scale * g[i] + decay * w[i]);                                          \
    }                                                                                              \
                                                                                                   \
    static void momentum_##real(const struct rule *rule, real *restrict w, const real *restrict g, \
                                real *restrict v, uint64_t n)                                      \
    {                                                                                              \
        const real rate = (real)rule->rate, scale = (real)rule->scale, decay = (real)rule->decay;  \
        const real momentum = (real)rule->momentum;                                                \
        for (uint64_t i = 0; i < n; i++) {                                                         \
            v[i] = momentum * v[i] + (scale * g[i] + decay * w[i]);                                \
            w[i] -= rate * v[i];                                                                   \
        }                                                                                          \
    }                                                                                              \
                                                                                                   \
    static void nesterov_##real(const struct rule *rule, real *restrict w, const real *restrict g, \
                                real *restrict v, uint64_t n)                                      \
    {                                                                                              \
        const real rate = (real)rule->rate, scale = (real)rule->scale, decay = (real)rule->decay;  \
        const real momentum = (real)rule->momentum;                                                \
        for (uint64_t i = 0; i < n; i++) {                                                         \
            real whole = scale * g[i] + decay * w[i];                                              \
            v[i] = momentum * v[i] + whole;                                                        \
            w[i] -= rate * (whole + momentum * v[i]);                                              \
        }                                                                                          \
    }                                                                                              \
                                                                                                   \
    static void adagrad_##real(const struct rule *rule, real *restrict w, const real *restrict g,  \
                               real *restrict s, uint64_t n)                                       \
    {                                                                                              \
        const real rate = (real)rule->rate, scale = (real)rule->scale, decay = (real)rule->decay;  \
        const real epsilon = (real)rule->epsilon;                                                  \
        for (uint64_t i = 0; i < n; i++) {                                                         \
            real whole = scale * g[i] + decay * w[i];                                              \
            s[i] += whole * whole;                                                                 \
            w[i] -= rate * whole / (root(s[i]) + epsilon);                                         \
        }                                                                                          \
    }

DEFINE_RULES(float, sqrtf)
DEFINE_RULES(double, sqrt)

/* n elements of one decay flag whose gradients are already in the weights' type. */
static void apply(const struct dpb_optimizer *optimizer, const struct rule *rule, bool plain,
                  void *w, const void *g, void *state, uint64_t n)
{
    bool fp64 = optimizer->weight_type == DPB_FP64;
    if (plain || !state)
        fp64 ? plain_double(rule, w, g, n) : plain_float(rule, w, g, n);
    else if (optimizer->settings.kind == DPB_ADAGRAD)
        fp64 ? adagrad_double(rule, w, g, state, n) : adagrad_float(rule, w, g, state, n);
    else if (optimizer->settings.nesterov)
        fp64 ? nesterov_double(rule, w, g, state, n) : nesterov_float(rule, w, g, state, n);
    else
        fp64 ? momentum_double(rule, w, g, state, n) : momentum_float(rule, w, g, state, n);
}

/* A device may swallow a NaN (max(0, NaN) is 0): then no loss would ever show what is wrong. */
static void look_at(const struct dpb_optimizer *optimizer, const char *w, uint64_t element,
                    uint64_t n)
{
    size_t size = dpb_dtype_size(optimizer->weight_type);
    uint64_t none = 0;
    if (dpb_vec.finite(optimizer->weight_type, w, n))
        return;
    while (dpb_vec.finite(optimizer->weight_type, w, 1)) {
        w += size;
        element++;
    }
    __atomic_compare_exchange_n(optimizer->not_finite, &none, element + 1, false, __ATOMIC_RELAXED,
                                __ATOMIC_RELAXED);
}

/* Elements from `element` of the arena on, of one decay flag. In pieces that stay in cache:
 * gradients of another type than the weights' pass through a buffer, new weights are looked at. */
static void apply_pieces(const struct dpb_optimizer *optimizer, const struct rule *rule, bool plain,
                         char *w, const char *g, char *state, uint64_t element, uint64_t n)
{
    enum { PIECE = 1024 };
    double buffer[PIECE];
    dpb_dtype type = optimizer->weight_type, g_type = optimizer->gradient_type;
    size_t w_size = dpb_dtype_size(type), g_size = dpb_dtype_size(g_type);
    bool looks =
        optimizer->not_finite && __atomic_load_n(optimizer->not_finite, __ATOMIC_RELAXED) == 0;
    for (uint64_t at = 0; at < n; at += PIECE) {
        uint64_t piece = n - at < PIECE ? n - at : PIECE;
        const void *gradients = g + at * g_size;
        char *weights = w + at * w_size;
        if (type != g_type) {
            dpb_vec.cast(type, buffer, g_type, gradients, piece);
            gradients = buffer;
        }
        apply(optimizer, rule, plain, weights, gradients, state ? state + at * w_size : NULL,
              piece);
        if (looks)
            look_at(optimizer, weights, element + at, piece);
    }
}

/* The last owned range that does not begin behind arena element `at`, or the first. */
static uint64_t owned_at(const struct dpb_optimizer *optimizer, uint64_t at)
{
    uint64_t low = 0, high = optimizer->n_owned;
    while (high - low > 1) {
        uint64_t middle = (low + high) / 2;
        if (optimizer->owned[middle].begin <= at)
            low = middle;
        else
            high = middle;
    }
    return low;
}

/* The state of arena element `at`, which lies in an owned range; NULL where the rule has none. */
static char *state_of(const struct dpb_optimizer *optimizer, uint64_t at)
{
    char *state = optimizer->device ? (char *)optimizer->device_state : optimizer->state.memory;
    if (!state)
        return NULL;
    const uint64_t i = owned_at(optimizer, at);
    uint64_t element = optimizer->state_at[i] + (at - optimizer->owned[i].begin);
    return state + element * dpb_dtype_size(optimizer->weight_type);
}

static void *host_state(struct dpb_optimizer *optimizer, uint64_t element)
{
    (void)__atomic_load_n(&optimizer->n_changes, __ATOMIC_ACQUIRE);
    return optimizer->device ? NULL : state_of(optimizer, element);
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

static uint32_t refused; /* an update: the run fails with the message that said so */

/* Whether a strategy asks for an update of elements that this rank does not own. `update` returns
 * no status, so the whole job ends. */
static bool refuses(const struct dpb_optimizer *optimizer, struct dpb_range range)
{
    uint64_t at = range.begin;
    const uint64_t n = optimizer ? optimizer->n_owned : 0;
    for (uint64_t i = n ? owned_at(optimizer, at) : 0;
         i < n && at < range.end && optimizer->owned[i].begin <= at && at < optimizer->owned[i].end;
         i++)
        at = optimizer->owned[i].end;
    if (range.begin <= range.end && at >= range.end)
        return false;
    dpb_fail(
        DPB_FAILED,
        "the strategy updates elements %llu to %llu, and this rank owns %s: `plan` says by its "
        "ranges what a rank updates",
        (unsigned long long)range.begin, (unsigned long long)range.end,
        n > 0 ? "not all of them" : "none");
    __atomic_store_n(&refused, 1, __ATOMIC_RELEASE);
    if (dpb_world.board != NULL)
        dpb_board_end_job(dpb_world.board);
    return true;
}

dpb_status dpb_optimizer_refused(void)
{
    return __atomic_load_n(&refused, __ATOMIC_ACQUIRE) ? DPB_FAILED : DPB_OK;
}

/* Tensor by tensor, because decay is a tensor's matter; the gaps behind them hold zeros and stay
 * so. A range lies within one owned range or within several that are adjacent in the state too. */
static void update(struct dpb_optimizer *optimizer, struct dpb_range range, void *weights,
                   const void *gradients, uint64_t bucket, const struct dpb_step *step)
{
    if (refuses(optimizer, range))
        return;
    const struct dpb_graph *graph = optimizer->graph;
    const bool plain = is_plain(step);
    int64_t began_ns = dpb_now_ns();
    (void)__atomic_load_n(&optimizer->n_changes, __ATOMIC_ACQUIRE);
    struct rule rule = {.rate = step->learning_rate,
                        .scale = step->scale,
                        .momentum = optimizer->settings.momentum,
                        .epsilon = optimizer->settings.epsilon};
    size_t w_size = dpb_dtype_size(optimizer->weight_type);
    size_t g_size = dpb_dtype_size(optimizer->gradient_type);
    uint64_t at = range.begin;
    for (uint32_t t = dpb_graph_tensor_at(graph, at); at < range.end; t++) {
        uint64_t next = t + 1 < graph->n_tensors ? graph->tensors[t + 1].offset : graph->n_elements;
        uint64_t end = next < range.end ? next : range.end;
        bool decays = graph->tensors[t].decays && !plain;
        rule.decay = decays ? optimizer->settings.weight_decay : 0.0;
        apply_pieces(optimizer, &rule, plain, (char *)weights + (at - range.begin) * w_size,
                     (const char *)gradients + (at - range.begin) * g_size, state_of(optimizer, at),
                     at, end - at);
        at = end;
    }
    note_change(optimizer);
    dpb_account_span(bucket, DPB_PHASE_UPDATE, began_ns, dpb_now_ns());
}

/* The first range with decay that ends behind `at`. */
static uint64_t decay_at(const struct dpb_optimizer *optimizer, uint64_t at)
{
    uint64_t low = 0, high = optimizer->n_decays;
    while (low < high) {
        uint64_t middle = (low + high) / 2;
        if (optimizer->decays[middle].end <= at)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static dpb_update_kind kind_of(const struct dpb_optimizer *optimizer, bool plain)
{
    if (plain || !optimizer->device_state)
        return DPB_UPDATE_PLAIN;
    if (optimizer->settings.kind == DPB_ADAGRAD)
        return DPB_UPDATE_ADAGRAD;
    return optimizer->settings.nesterov ? DPB_UPDATE_NESTEROV : DPB_UPDATE_MOMENTUM;
}

/* A launch copies the words before its updates read them; the next ones are written when it is
 * over. */
static dpb_status capture(struct dpb_optimizer *optimizer, struct dpb_queue *queue)
{
    if (!optimizer->device)
        return dpb_fail(DPB_USAGE, "an update is captured of weights that are on no device");
    return optimizer->device->ops->copy(queue, optimizer->words, optimizer->next_words,
                                        sizeof *optimizer->words);
}

static void replay(struct dpb_optimizer *optimizer, const struct dpb_step *step)
{
    *optimizer->next_words =
        (struct dpb_update_words){.rate = (float)step->learning_rate, .scale = (float)step->scale};
}

static dpb_status enqueue(struct dpb_optimizer *optimizer, struct dpb_queue *queue,
                          struct dpb_range range, void *weights, const void *gradients,
                          const struct dpb_step *step)
{
    const struct dpb_optimizer_settings *settings = &optimizer->settings;
    const bool plain = step && is_plain(step);
    if (refuses(optimizer, range))
        return DPB_FAILED;
    if (!optimizer->device)
        return dpb_fail(DPB_USAGE, "an update is enqueued of weights that are on no device");
    uint64_t decay = decay_at(optimizer, range.begin), end = decay;
    while (end < optimizer->n_decays && optimizer->decays[end].begin < range.end)
        end++;
    const struct dpb_update update = {.kind = kind_of(optimizer, plain),
                                      .rate = step ? step->learning_rate : 0.0,
                                      .scale = step ? step->scale : 0.0,
                                      .words = step ? NULL : optimizer->words,
                                      .decay = plain ? 0.0 : settings->weight_decay,
                                      .momentum = settings->momentum,
                                      .epsilon = settings->epsilon,
                                      .n = range.end - range.begin,
                                      .first = range.begin,
                                      .decays = optimizer->device_decays + decay,
                                      .n_decays = end - decay,
                                      .weights = weights,
                                      .gradients = gradients,
                                      .gradient_type = optimizer->gradient_type,
                                      .state = (float *)(void *)state_of(optimizer, range.begin),
                                      .not_finite =
                                          optimizer->not_finite ? optimizer->found : NULL};
    return optimizer->device->ops->update(queue, &update);
}

const struct dpb_optimizer_ops dpb_optimizers = {.update = update,
                                                 .enqueue = enqueue,
                                                 .state = host_state,
                                                 .capture = capture,
                                                 .replay = replay};
