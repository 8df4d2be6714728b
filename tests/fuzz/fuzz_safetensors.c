/* fuzz_safetensors.c - a checkpoint: every tensor in it, and all of two small networks, of which
 * one has a layout of others and a tied weight. */
#include "checkpoint/checkpoint.h"
#include "checkpoint/safetensors.h"
#include "graph/graph.h"
#include "tests/fuzz/fuzz.h"

static dpb_status build_net(const void *options, const struct dpb_graph_ops *g,
                            struct dpb_graph_builder *b, uint32_t nclass)
{
    (void)options;
    const struct dpb_batch_norm_args bn = {0};
    uint32_t x = g->batch_norm(b, "bn", g->input(b), &bn);
    x = g->dense(b, "fc", x, nclass, true);
    g->softmax_loss(b, "loss", x);
    return DPB_OK;
}

static dpb_status build_tied(const void *options, const struct dpb_graph_ops *g,
                             struct dpb_graph_builder *b, uint32_t nclass)
{
    (void)options, (void)nclass;
    const struct dpb_conv_args dense = {.channels = 2, .kernel_h = 1, .bias = true};
    const uint32_t rows = g->embedding(b, "rows", g->input(b), 2);
    const uint32_t x = g->conv(b, "block1.fc", rows, &dense);
    g->softmax_loss(b, "loss", g->tied(b, "classes", x, rows));
    return DPB_OK;
}

static const struct dpb_graph *network(bool is_tied)
{
    static const struct dpb_file_layer layers[] = {{"rows", "wte", false},
                                                   {"block#.fc", "h.#.fc", true},
                                                   {"classes", "head", false},
                                                   {NULL, "h.#.mask", false},
                                                   {NULL, NULL, false}};
    static const struct dpb_file_layout layout = {"others", "net.", layers};
    static const struct dpb_model_ops models[] = {{.build = build_net},
                                                  {.build = build_tied, .layout = &layout}};
    static const struct dpb_shape shapes[] = {{2, 1, 1}, {1, 1, 2}};
    static struct dpb_graph *graphs[2];
    if (!graphs[is_tied])
        FUZZ_CHECK(dpb_graph_build("net", &models[is_tied], NULL, shapes[is_tied], 2,
                                   &graphs[is_tied]) == DPB_OK);
    return graphs[is_tied];
}

static void visit(void *context, const char *name)
{
    static const struct {
        uint32_t n_dims, dims[2];
    } shapes[] = {{0, {0}}, {1, {2}}, {2, {2, 2}}};
    const struct dpb_safetensors *file = context;
    FUZZ_CHECK(dpb_safetensors_has(file, name));
    for (size_t i = 0; i < 6; i++) {
        struct dpb_safetensor tensor = {
            .name = name, .type = i < 3 ? DPB_FP32 : DPB_FP64, .n_dims = shapes[i % 3].n_dims};
        memcpy(tensor.dims, shapes[i % 3].dims, sizeof shapes[0].dims);
        size_t elements = i % 3 == 0 ? 1 : i % 3 == 1 ? 2 : 4;
        tensor.transposed = i % 3 == 2 && i > 3;
        tensor.memory = malloc(elements * dpb_dtype_size(tensor.type));
        FUZZ_CHECK(tensor.memory != NULL);
        bool fits = dpb_safetensors_check(file, &tensor) == DPB_OK;
        FUZZ_CHECK((dpb_safetensors_read(file, &tensor) == DPB_OK) == fits);
        free(tensor.memory);
    }
}

static void load(const char *path, const struct dpb_graph *graph, dpb_dtype type,
                 const char *optimizer)
{
    size_t size = dpb_dtype_size(type);
    struct dpb_checkpoint checkpoint = {.graph = graph,
                                        .type = type,
                                        .weights = malloc(graph->n_elements * size),
                                        .state = malloc(graph->n_state_elements * size + 1),
                                        .optimizer = malloc(graph->n_elements * size),
                                        .optimizer_names = {optimizer}};
    struct dpb_progress progress;
    bool good = dpb_checkpoint_check(path, &checkpoint, &progress) == DPB_OK;
    FUZZ_CHECK((dpb_checkpoint_load(path, &checkpoint) == DPB_OK) == good);
    if (good)
        fuzz_used();
    free(checkpoint.weights);
    free(checkpoint.state);
    free(checkpoint.optimizer);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct dpb_safetensors *file = NULL;
    fuzz_begin();
    const char *path = fuzz_file(data, size);
    if (dpb_safetensors_open(path, &file) == DPB_OK) {
        dpb_safetensors_visit(file, visit, file);
        dpb_safetensors_close(file);
        for (int is_tied = 0; is_tied < 2; is_tied++) {
            load(path, network(is_tied), DPB_FP32, "momentum_buffer");
            load(path, network(is_tied), DPB_FP64, NULL);
        }
    } else {
        FUZZ_CHECK(file == NULL && dpb_first_error(NULL)[0] != '\0');
    }
    fuzz_close();
    return 0;
}
