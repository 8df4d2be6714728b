/* session.c - see session.h. */
#include "lib/session.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/log.h"
#include "dpbench/random.h"
#include "lib/model.h"
#include "lib/plugin.h"

void *allocate(size_t n, size_t size)
{
    void *memory = NULL;
    assert_int_equal(posix_memalign(&memory, DPB_CACHE_LINE, n * size + DPB_CACHE_LINE), 0);
    memset(memory, 0, n * size + DPB_CACHE_LINE);
    return memory;
}

void expect_ok(dpb_status status)
{
    if (status != DPB_OK)
        fail_msg("%s", dpb_first_error(NULL));
}

static struct dpb_graph *build_graph(const struct subject *subject)
{
    const struct dpb_plugin *model = subject->own ? subject->own : model_find(subject->model);
    struct dpb_shape input = model_info(model).input;
    if (subject->image)
        input.h = input.w = subject->image;
    return model_graph(model, subject->version, input, 10);
}

static const void *options_given;

void session_options(const void *options)
{
    options_given = options;
}

const struct tested_device *tested_device(void)
{
    static const struct tested_device devices[] = {
        {.name = "cpu"},
        {"cuda", .captures = true, .own_memory = true, .tensor_cores = true, .rounds_weights = true,
         .rounds_sums = true},
        {"cuda_stand_in", .captures = true, .own_memory = true, .tensor_cores = true,
         .rounds_weights = true, .rounds_sums = true},
    };
    const char *name = getenv("DPB_TEST_DEVICE");
    for (size_t i = 0; name && i < sizeof devices / sizeof devices[0]; i++) {
        if (strcmp(devices[i].name, name) == 0)
            return &devices[i];
    }
    if (name)
        fail_msg("DPB_TEST_DEVICE = %s is not cpu, cuda or cuda_stand_in", name);
    return &devices[0];
}

static const struct dpb_plugin *load_device(void)
{
    const char *name = tested_device()->name;
    if (strcmp(name, "cuda_stand_in") == 0)
        return plugin_load_from("tests/cuda/plugins", DPB_PLUGIN_DEVICE, "cuda", &plugin_host);
    return plugin_load(DPB_PLUGIN_DEVICE, name, &plugin_host);
}

static void check_libraries(const struct dpb_plugin *plugin)
{
    for (const struct dpb_library *library = plugin->libraries; library->name; library++)
        assert_int_equal(strncmp(library->loaded, library->built, 2), 0);
    if (strcmp(plugin->name, "cpu") == 0) {
        assert_string_equal(plugin->thread_variables[0], "OMP_NUM_THREADS");
        assert_string_equal(plugin->libraries[0].name, "oneDNN");
    }
}

/* ---- test material ------------------------------------------------------------------------- */

static double noise(uint32_t what, uint64_t i)
{
    struct dpb_random4 r = dpb_random(SEED, DPB_STREAM_SYNTHETIC, what, (uint32_t)i, 0, 0);
    double pair[2];
    dpb_random_normal(r.v[0], r.v[1], pair);
    return pair[0];
}

/* Initial weights, but no bias 0 and no gamma 1: they would hide what is left out. */
static void fill_weights(const struct dpb_graph *graph, float *weights)
{
    dpb_graph_initialise(graph, SEED, DPB_FP32, weights);
    for (uint32_t t = 0; t < graph->n_tensors; t++) {
        const struct dpb_tensor *tensor = &graph->tensors[t];
        for (uint64_t i = 0; tensor->n_dims == 1 && i < tensor->n_elements; i++)
            weights[tensor->offset + i] += (float)(0.2 * noise(t, i));
    }
}

static void fill_state(const struct dpb_graph *graph, float *state)
{
    dpb_graph_initialise_state(graph, DPB_FP32, state);
    for (uint32_t s = 0; s < graph->n_states; s++) {
        const struct dpb_state *item = &graph->states[s];
        for (uint64_t i = 0; i < item->n_elements; i++)
            state[item->offset + i] += (float)(0.3 * fabs(noise(1000 + s, i)));
    }
}

static void fill_batch(const struct subject *subject, struct session *s)
{
    s->format = (struct dpb_sample_format){.shape = s->graph->nodes[0].shape,
                                           .type = subject->type,
                                           .order = subject->order,
                                           .scale = {0.02f, 0.017f, 0.023f, 0.01f},
                                           .offset = {-2.1f, -1.9f, -2.4f, 0.5f}};
    uint64_t n = subject->batch * dpb_shape_elements(s->format.shape);
    uint8_t *bytes = allocate(n, 1);
    float *values = allocate(n, sizeof *values);
    int32_t *labels = allocate(subject->batch, sizeof *labels);
    for (uint64_t i = 0; i < n; i++) {
        bytes[i] = (uint8_t)dpb_random(SEED, DPB_STREAM_SYNTHETIC, 2000, (uint32_t)i, 0, 0).v[0];
        values[i] = (float)bytes[i] + 0.3f;
    }
    for (uint32_t i = 0; i < subject->batch; i++)
        labels[i] = (int32_t)((i * 3 + 1) % s->graph->nclass);
    bool as_bytes = subject->type == DPB_UINT8;
    s->batch = (struct dpb_batch){.format = &s->format,
                                  .samples = as_bytes ? (void *)bytes : (void *)values,
                                  .labels = labels,
                                  .n = subject->batch};
    free(as_bytes ? (void *)values : (void *)bytes);
}

/* ---- passes -------------------------------------------------------------------------------- */

/* The range is final: remember its gradients, and take its weights away. */
static dpb_status on_final(void *context, uint64_t frontier, struct dpb_event *event)
{
    struct session *s = context;
    assert_null(event);
    assert_true(frontier > s->frontier && frontier <= s->graph->n_elements);
    for (uint64_t i = s->frontier; i < frontier; i++) {
        s->at_frontier[i] = s->gradients[i];
        if (s->spoil)
            s->weights[i] = NAN;
    }
    s->frontier = frontier;
    return DPB_OK;
}

static dpb_status on_progress(void *context)
{
    struct session *s = context;
    s->n_progress++;
    return DPB_OK;
}

/* ReLUs and additions may be fused with what comes before them. */
static uint64_t least_steps(const struct dpb_graph *graph)
{
    uint64_t n = 0;
    for (uint32_t i = 0; i + 1 < graph->n_nodes; i++)
        n += graph->nodes[i].op != DPB_OP_RELU && graph->nodes[i].op != DPB_OP_ADD;
    return n;
}

void session_forward(struct session *s)
{
    s->n_progress = 0;
    expect_ok(s->ops->forward(s->program, &s->pass, &s->batch, &s->hooks, &s->outcome));
    assert_true(tested_device()->captures || s->n_progress >= least_steps(s->graph));
}

/* Backward from gradients that hold NaN everywhere: it has to assign them all. */
void session_backward(struct session *s)
{
    const struct dpb_graph *graph = s->graph;
    s->frontier = 0;
    s->n_progress = 0;
    for (uint32_t t = 0; t < graph->n_tensors; t++) {
        for (uint64_t i = 0; i < graph->tensors[t].n_elements; i++)
            s->gradients[graph->tensors[t].offset + i] = NAN;
    }
    expect_ok(s->ops->backward(s->program, &s->pass, &s->hooks));
    assert_true(tested_device()->captures || s->n_progress > 0);
    assert_true(s->frontier == graph->n_elements);
    assert_memory_equal(s->at_frontier, s->gradients, graph->n_elements * sizeof(float));
}

static struct dpb_device_memory memory_of(const struct session *s, bool training)
{
    return (struct dpb_device_memory){.weights = s->weights,
                                      .gradients = training ? s->gradients : NULL,
                                      .state = s->state,
                                      .statistics = s->statistics};
}

void session_open(const struct subject *subject, dpb_precision precision, bool training,
                  struct session *s)
{
    *s = (struct session){.precision = precision, .graph = build_graph(subject)};
    const struct dpb_graph *graph = s->graph;
    s->weights = allocate(graph->n_elements, sizeof(float));
    s->gradients = allocate(graph->n_elements, sizeof(float));
    s->at_frontier = allocate(graph->n_elements, sizeof(float));
    s->state = allocate(graph->n_state_elements, sizeof(float));
    s->statistics = allocate(graph->n_state_elements, sizeof(float));
    fill_weights(graph, s->weights);
    fill_state(graph, s->state);
    fill_batch(subject, s);
    s->pass = (struct dpb_pass){.training = training,
                                .weights_changed = true,
                                .step = STEP,
                                .first_sample = FIRST_SAMPLE,
                                .valid = subject->batch,
                                .loss_scale = 256};

    s->hooks = (struct dpb_hooks){.context = s, .final = on_final, .progress = on_progress};
    const struct dpb_plugin *plugin = load_device();
    check_libraries(plugin);
    s->ops = plugin->ops;
    const struct dpb_device_args device_args = {.threads = 2, .seed = SEED};
    expect_ok(s->ops->open(options_given, &device_args, &s->device));
    const struct dpb_compile_args args = {.graph = graph,
                                          .batch = subject->batch,
                                          .precision = precision,
                                          .training = training,
                                          .format = &s->format,
                                          .inspect = true};
    const struct dpb_device_memory memory = memory_of(s, training);
    assert_true(s->ops->memory_needed(NULL, &args) > 0);
    expect_ok(s->ops->compile(s->device, &args, &memory, &s->program));
}

void *session_compile_with_account(const struct session *s)
{
    const struct dpb_compile_args args = {.graph = s->graph,
                                          .batch = s->batch.n,
                                          .precision = s->precision,
                                          .training = true,
                                          .format = &s->format,
                                          .profile = true};
    const struct dpb_device_memory memory = memory_of(s, true);
    void *program = NULL;
    expect_ok(s->ops->compile(s->device, &args, &memory, &program));
    return program;
}

void session_expect_refused(const struct session *s, dpb_precision precision, const char *words)
{
    const struct dpb_compile_args args = {.graph = s->graph,
                                          .batch = s->batch.n,
                                          .precision = precision,
                                          .training = true,
                                          .format = &s->format};
    const struct dpb_device_memory memory = memory_of(s, true);
    void *program = NULL;
    dpb_first_error_clear();
    assert_int_equal(s->ops->compile(s->device, &args, &memory, &program), DPB_UNSUPPORTED);
    assert_null(program);
    if (!strstr(dpb_first_error(NULL), words))
        fail_msg("the refusal lacks '%s': %s", words, dpb_first_error(NULL));
    dpb_first_error_clear();
}

void session_close(struct session *s)
{
    s->ops->release(s->program);
    s->ops->close(s->device);
    dpb_graph_destroy(s->graph);
    free(s->weights);
    free(s->gradients);
    free(s->at_frontier);
    free(s->state);
    free(s->statistics);
    free((void *)s->batch.samples);
    free((void *)s->batch.labels);
}
