/* session.c - see session.h. */
#include "lib/session.h"

#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "lib/model.h"
#include "lib/plugin.h"
#include "lib/test.h"

void *allocate(size_t n, size_t size)
{
    void *memory = dpb_session_allocate(n, size);
    assert_non_null(memory);
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
        input.w = subject->image;
    if (subject->image && subject->type != DPB_INT32)
        input.h = subject->image;
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

/* ---- passes -------------------------------------------------------------------------------- */

/* ReLUs and additions may be fused with what comes before them. */
static uint64_t least_steps(const struct dpb_graph *graph)
{
    uint64_t n = 0;
    for (uint32_t i = 0; i + 1 < graph->n_nodes; i++)
        n += graph->nodes[i].op != DPB_OP_RELU && graph->nodes[i].op != DPB_OP_ADD;
    return n;
}

void session_forward(struct dpb_session *s)
{
    expect_ok(dpb_session_forward(s));
    assert_true(tested_device()->captures || s->n_progress >= least_steps(s->graph));
}

void session_backward(struct dpb_session *s)
{
    expect_ok(dpb_session_backward(s));
    assert_true(tested_device()->captures || s->n_progress > 0);
}

void session_open(const struct subject *subject, dpb_precision precision, bool training,
                  struct dpb_session *s)
{
    const struct tested_device *device = tested_device();
    const struct dpb_plugin *plugin = load_device();
    check_libraries(plugin);
    expect_ok(dpb_session_open(
        &(struct dpb_session_args){.ops = plugin->ops,
                                   .options = options_given,
                                   .graph = build_graph(subject),
                                   .batch = subject->batch,
                                   .type = subject->type,
                                   .order = subject->order,
                                   .precision = precision,
                                   .training = training,
                                   .node_by_node = plugin->capabilities & DPB_DEVICE_NODE_BY_NODE,
                                   .rounds_weights = device->rounds_weights,
                                   .rounds_sums = device->rounds_sums},
        s));
}

void *session_compile_with_account(const struct dpb_session *s)
{
    const struct dpb_compile_args args = {.graph = s->graph,
                                          .batch = s->batch.n,
                                          .precision = s->precision,
                                          .training = true,
                                          .format = &s->format,
                                          .profile = true};
    const struct dpb_device_memory memory = dpb_session_memory(s);
    void *program = NULL;
    expect_ok(s->ops->compile(s->device, &args, &memory, &program));
    return program;
}

void session_expect_refused(const struct dpb_session *s, dpb_precision precision, const char *words)
{
    const struct dpb_compile_args args = {.graph = s->graph,
                                          .batch = s->batch.n,
                                          .precision = precision,
                                          .training = true,
                                          .format = &s->format};
    const struct dpb_device_memory memory = dpb_session_memory(s);
    void *program = NULL;
    dpb_first_error_clear();
    assert_int_equal(s->ops->compile(s->device, &args, &memory, &program), DPB_UNSUPPORTED);
    assert_null(program);
    if (!strstr(dpb_first_error(NULL), words))
        fail_msg("the refusal lacks '%s': %s", words, dpb_first_error(NULL));
    dpb_first_error_clear();
}

void session_close(struct dpb_session *s)
{
    dpb_session_close(s);
}
