/*
 * test_checkpoint.c - safetensors files: what is written, what comes back, what is refused, and
 * that an old file survives a failure to write the new one.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <dirent.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <jansson.h>

#include "base/log.h"
#include "checkpoint/checkpoint.h"
#include "graph/graph.h"
#include "lib/capture.h"
#include "lib/own.h"
#include "lib/test.h"
#include "plan/evaluations.h"

/* -------------------------------------------------------------------------------------- fixture */

static dpb_status build_net(const void *options, const struct dpb_graph_ops *g,
                            struct dpb_graph_builder *b, uint32_t nclass)
{
    (void)options;
    const struct dpb_conv_args conv = {.channels = 5, .kernel_h = 3, .kernel_w = 1};
    const struct dpb_batch_norm_args bn = {0};
    uint32_t x = g->conv(b, "conv", g->input(b), &conv);
    x = g->batch_norm(b, "bn", x, &bn);
    x = g->dense(b, "fc", x, nclass, true);
    g->softmax_loss(b, "loss", x);
    return DPB_OK;
}

static const struct dpb_model_ops net = {.build = build_net};

/* A graph with weights and state of one type, and a directory for files. */
struct fixture {
    char directory[64], path[96];
    struct dpb_graph *graph;
    dpb_dtype type;
    void *weights, *state;
};

static void fixture_fill(struct fixture *f, uint64_t seed)
{
    dpb_graph_initialise(f->graph, seed, f->type, f->weights);
    dpb_graph_initialise_state(f->graph, f->type, f->state);
    for (uint32_t i = 0; i < f->graph->n_states; i++) {
        const struct dpb_state *state = &f->graph->states[i];
        for (uint64_t k = state->offset; k < state->offset + state->n_elements; k++) {
            double value = (double)(seed + k) / 3.0;
            if (f->type == DPB_FP64)
                ((double *)f->state)[k] = value;
            else
                ((float *)f->state)[k] = (float)value;
        }
    }
}

/* Names in the directory but "." and ".."; removes them when `clean`. */
static int count_files(const struct fixture *f, bool clean)
{
    int n = 0;
    DIR *directory = opendir(f->directory);
    assert_non_null(directory);
    for (struct dirent *entry; (entry = readdir(directory));) {
        if (entry->d_name[0] == '.')
            continue;
        char path[512];
        snprintf(path, sizeof path, "%s/%s", f->directory, entry->d_name);
        if (clean)
            remove(path);
        n++;
    }
    closedir(directory);
    return n;
}

static void fixture_close(void *fixture)
{
    struct fixture *f = fixture;
    count_files(f, true);
    rmdir(f->directory);
    dpb_graph_destroy(f->graph);
    free(f->weights);
    free(f->state);
    free(f);
}

static void fixture_open(struct fixture *f, dpb_dtype type)
{
    *f = (struct fixture){.directory = "/tmp/dpb_checkpoint_XXXXXX", .type = type};
    assert_non_null(mkdtemp(f->directory));
    snprintf(f->path, sizeof f->path, "%s/net.safetensors", f->directory);
    const struct dpb_shape input = {3, 3, 3};
    assert_int_equal(dpb_graph_build("net", &net, NULL, input, 7, &f->graph), DPB_OK);
    f->weights = malloc(f->graph->n_elements * dpb_dtype_size(type));
    f->state = malloc(f->graph->n_state_elements * dpb_dtype_size(type));
    assert_true(f->weights && f->state);
    *(struct fixture *)own_memory(malloc(sizeof *f), fixture_close) = *f;
    fixture_fill(f, 1);
    dpb_first_error_clear();
    dpb_warnings_clear();
}

static struct dpb_checkpoint checkpoint_of(const struct fixture *f, void *weights, void *state)
{
    return (struct dpb_checkpoint){
        .graph = f->graph, .type = f->type, .weights = weights, .state = state};
}

static void save(const struct fixture *f, const char *const *metadata)
{
    const struct dpb_checkpoint checkpoint = checkpoint_of(f, f->weights, f->state);
    const struct dpb_progress begin = {0};
    if (dpb_checkpoint_save(f->path, &checkpoint, &begin, metadata) != DPB_OK)
        fail_msg("%s", dpb_first_error(NULL));
}

static dpb_status load(const struct fixture *f, void *weights, void *state)
{
    const struct dpb_checkpoint checkpoint = checkpoint_of(f, weights, state);
    return dpb_checkpoint_load(f->path, &checkpoint);
}

static char *read_file(const char *path, size_t *size)
{
    FILE *file = fopen(path, "rb");
    assert_non_null(file);
    char *bytes = malloc(1 << 20);
    assert_non_null(bytes);
    *size = fread(bytes, 1, 1 << 20, file);
    fclose(file);
    return own_memory(bytes, free);
}

static void write_file(const char *path, const void *bytes, size_t size)
{
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(bytes, 1, size, file), size);
    assert_int_equal(fclose(file), 0);
}

static void write_checkpoint(const char *path, const char *header, const void *data, size_t n)
{
    uint64_t length = strlen(header);
    char *bytes = own_memory(malloc(8 + length + n), free);
    assert_non_null(bytes);
    memcpy(bytes, &length, 8);
    memcpy(bytes + 8, header, length);
    memcpy(bytes + 8 + length, data, n);
    write_file(path, bytes, 8 + length + n);
}

/* ------------------------------------------------------------------------------------ round tri */

/* Loads into arenas full of garbage and compares everything, gaps included. */
static void check_load(const struct fixture *f)
{
    size_t weight_bytes = f->graph->n_elements * dpb_dtype_size(f->type);
    size_t state_bytes = f->graph->n_state_elements * dpb_dtype_size(f->type);
    void *weights = own_memory(malloc(weight_bytes), free),
         *state = own_memory(malloc(state_bytes), free);
    assert_true(weights && state);
    memset(weights, 0x5a, weight_bytes);
    memset(state, 0x5a, state_bytes);
    if (load(f, weights, state) != DPB_OK)
        fail_msg("%s", dpb_first_error(NULL));
    assert_memory_equal(weights, f->weights, weight_bytes);
    assert_memory_equal(state, f->state, state_bytes);
}

TEST(test_round_trip)
{
    for (dpb_dtype type = DPB_FP64; type <= DPB_FP32; type++) {
        struct fixture f;
        fixture_open(&f, type);
        save(&f, NULL);
        check_load(&f);
        fixture_fill(&f, 2); /* over an old file */
        save(&f, NULL);
        check_load(&f);
        assert_int_equal(count_files(&f, false), 1);
    }
}

static dpb_status build_tied(const void *options, const struct dpb_graph_ops *g,
                             struct dpb_graph_builder *b, uint32_t nclass)
{
    (void)options, (void)nclass;
    const uint32_t rows = g->embedding(b, "rows", g->input(b), 3);
    g->softmax_loss(b, "loss", g->tied(b, "classes", g->gelu(b, "gelu", rows, true), rows));
    return DPB_OK;
}

/* A tensor that two nodes have is written once. */
TEST(test_tied)
{
    static const struct dpb_model_ops tied = {.build = build_tied};
    struct fixture f;
    fixture_open(&f, DPB_FP32);
    struct dpb_graph *graph;
    assert_int_equal(dpb_graph_build("tied", &tied, NULL, (struct dpb_shape){1, 1, 4}, 5, &graph),
                     DPB_OK);
    f.graph = own_graph(graph);
    fixture_fill(&f, 3);
    save(&f, NULL);
    check_load(&f);
}

/* ---- the layout of others ------------------------------------------------------------------ */

static const struct dpb_file_layer layers[] = {{"conv", "a.conv", false},
                                               {"bn", "a.bn", false},
                                               {"fc", "a.fc", true},
                                               {NULL, "a.#.mask", false},
                                               {NULL, NULL, false}};
static const struct dpb_file_layout published = {"published", "net.", layers};

/* Replaces the fixture's graph by one of the same network with a layout. */
static void use_layout(struct fixture *f, const struct dpb_file_layout *layout)
{
    const struct dpb_model_ops model = {.build = build_net, .layout = layout};
    struct dpb_graph *graph;
    assert_int_equal(dpb_graph_build("net", &model, NULL, (struct dpb_shape){3, 3, 3}, 7, &graph),
                     DPB_OK);
    f->graph = own_graph(graph);
}

static dpb_status save_in(const struct fixture *f, const struct dpb_file_layout *layout)
{
    struct dpb_checkpoint checkpoint = checkpoint_of(f, f->weights, f->state);
    checkpoint.layout = layout;
    return dpb_checkpoint_save(f->path, &checkpoint, &(struct dpb_progress){0}, NULL);
}

TEST(test_another_layout)
{
    for (dpb_dtype type = DPB_FP64; type <= DPB_FP32; type++) {
        struct fixture f;
        fixture_open(&f, type);
        use_layout(&f, &published);
        assert_int_equal(save_in(&f, &published), DPB_OK);
        check_load(&f);
        size_t size;
        const char *bytes = read_file(f.path, &size);
        uint64_t length;
        memcpy(&length, bytes, 8);
        assert_non_null(memmem(bytes, size, "\"a.bn.running_mean\"", 19));
        json_t *header = own_json(json_loadb(bytes + 8, length, 0, NULL));
        const json_t *fc = json_object_get(header, "a.fc.weight");
        json_int_t rows, columns, begin;
        assert_int_equal(json_unpack((json_t *)(uintptr_t)fc, "{s:[I,I!], s:[I]}", "shape", &rows,
                                     &columns, "data_offsets", &begin),
                         0);
        assert_true(rows == 45 && columns == 7);
        const char *data = bytes + 8 + length + begin;
        for (uint32_t i = 0; i < f.graph->n_tensors; i++)
            for (size_t k = 0, at = f.graph->tensors[i].offset, n = dpb_dtype_size(type);
                 strcmp(f.graph->tensors[i].name, "fc.weight") == 0 && k < 45 * 7; k++)
                assert_memory_equal(data + k * n, (char *)f.weights + (at + k % 7 * 45 + k / 7) * n,
                                    n);
        save(&f, NULL); /* in its own */
        check_load(&f);
    }
}

/* A table without a node fails where it is used. */
TEST(test_an_incomplete_layout)
{
    static const struct dpb_file_layer most[] = {
        {"conv", "a.conv", false}, {"bn", "a.bn", false}, {NULL, NULL, false}};
    static const struct dpb_file_layer wrong[] = {{"conv", "a.conv", true}, {NULL, NULL, false}};
    const struct {
        struct dpb_file_layout layout;
        const char *node;
    } rows[] = {{{"most", NULL, most}, "'fc'"}, {{"wrong", NULL, wrong}, "'conv'"}};
    for (size_t i = 0; i < 2; i++) {
        struct fixture f;
        fixture_open(&f, DPB_FP32);
        use_layout(&f, &rows[i].layout);
        assert_int_equal(save_in(&f, &rows[i].layout), DPB_UNSUPPORTED);
        assert_non_null(strstr(dpb_first_error(NULL), rows[i].node));
        assert_int_equal(count_files(&f, false), 0);
    }
}

/* F32 read as fp64 is exact, and back; F64 is rounded. */
TEST(test_conversion)
{
    struct fixture single, twice;
    fixture_open(&single, DPB_FP32);
    fixture_open(&twice, DPB_FP64);
    const struct dpb_graph *graph = twice.graph;

    save(&single, NULL);
    struct dpb_checkpoint into = checkpoint_of(&twice, twice.weights, twice.state);
    assert_int_equal(dpb_checkpoint_load(single.path, &into), DPB_OK);
    for (uint64_t i = 0; i < graph->n_elements; i++)
        assert_true(((double *)twice.weights)[i] == (double)((float *)single.weights)[i]);

    fixture_fill(&twice, 3);
    save(&twice, NULL);
    into = checkpoint_of(&single, single.weights, single.state);
    assert_int_equal(dpb_checkpoint_load(twice.path, &into), DPB_OK);
    for (uint64_t i = 0; i < graph->n_elements; i++)
        assert_true(((float *)single.weights)[i] == (float)((double *)twice.weights)[i]);
    for (uint64_t i = 0; i < graph->n_state_elements; i++)
        assert_true(((float *)single.state)[i] == (float)((double *)twice.state)[i]);
}

/* The file against the format's description, read with nothing of ours. */
TEST(test_format)
{
    static const char *const metadata[] = {"step", "12", "model", "n\"et", NULL};
    static const char *const names[] = {"__metadata__", "conv.weight",     "bn.weight",
                                        "bn.bias",      "bn.running_mean", "bn.running_var",
                                        "fc.weight",    "fc.bias"};
    struct fixture f;
    fixture_open(&f, DPB_FP32);
    save(&f, metadata);
    size_t size, n = 0;
    char *bytes = read_file(f.path, &size);
    uint64_t length = 0;
    for (int i = 7; i >= 0; i--)
        length = length << 8 | (unsigned char)bytes[i];
    assert_int_equal(length % 8, 0);
    assert_int_equal(bytes[8], '{');
    size_t elements = 5 * 3 * 3 * 1 + 4 * 5 + 7 * 45 + 7;
    assert_int_equal(size, 8 + length + elements * sizeof(float));

    json_t *header = own_json(json_loadb(bytes + 8, length, 0, NULL));
    assert_non_null(header);
    const char *name;
    json_t *value;
    json_object_foreach(header, name, value)
    {
        assert_true(n < sizeof names / sizeof *names);
        assert_string_equal(name, names[n++]);
    }
    assert_int_equal(n, sizeof names / sizeof *names);
    assert_string_equal(
        json_string_value(json_object_get(json_object_get(header, "__metadata__"), "model")),
        "n\"et");

    const char *dtype;
    json_int_t dims[4], begin, end;
    assert_int_equal(json_unpack(json_object_get(header, "conv.weight"),
                                 "{s:s, s:[I,I,I,I!], s:[I,I!]!}", "dtype", &dtype, "shape",
                                 &dims[0], &dims[1], &dims[2], &dims[3], "data_offsets", &begin,
                                 &end),
                     0);
    assert_string_equal(dtype, "F32");
    assert_true(dims[0] == 5 && dims[1] == 3 && dims[2] == 3 && dims[3] == 1);
    assert_true(begin == 0 && end == 45 * 4);
    const struct dpb_tensor *conv = &f.graph->tensors[f.graph->n_tensors - 1];
    assert_string_equal(conv->name, "conv.weight");
    assert_memory_equal(bytes + 8 + length, (const float *)f.weights + conv->offset, 45 * 4);
}

/* --------------------------------------------------------------------------------------- refusa */

/* Loading `f->path` fails with the file's name and `reason`, and leaves the arenas alone. */
static void check_refused(const struct fixture *f, const char *reason)
{
    size_t bytes = f->graph->n_elements * dpb_dtype_size(f->type);
    char *weights = own_memory(malloc(bytes), free), *expected = own_memory(malloc(bytes), free);
    void *state = own_memory(malloc(f->graph->n_state_elements * dpb_dtype_size(f->type)), free);
    assert_true(weights && expected && state);
    memset(weights, 0x5a, bytes);
    memset(expected, 0x5a, bytes);
    dpb_first_error_clear();
    dpb_status status = load(f, weights, state);
    const char *message = dpb_first_error(NULL);
    if (status != DPB_DATA || !strstr(message, f->path) || !strstr(message, reason))
        fail_msg("expected '%s', got status %d: %s", reason, (int)status, message);
    assert_memory_equal(weights, expected, bytes);
}

TEST(test_refuses_damaged_files)
{
    struct fixture f;
    fixture_open(&f, DPB_FP32);
    check_refused(&f, "No such file");
    save(&f, NULL);
    size_t size;
    char *bytes = read_file(f.path, &size);

    write_file(f.path, bytes, 0);
    check_refused(&f, "0 bytes");
    write_file(f.path, bytes, 7);
    check_refused(&f, "7 bytes");
    write_file(f.path, bytes, 100);
    check_refused(&f, "a header of");
    write_file(f.path, bytes, size - 1);
    check_refused(&f, "cut off");

    char *longer = own_memory(calloc(1, size + 4), free);
    assert_non_null(longer);
    memcpy(longer, bytes, size);
    write_file(f.path, longer, size + 4);
    check_refused(&f, "tensors end at byte");
    memset(longer, 0xff, 8);
    write_file(f.path, longer, size);
    check_refused(&f, "a header of 18446744073709551615 bytes");

    bytes[20] = '\0';
    write_file(f.path, bytes, size);
    check_refused(&f, "not JSON");
    write_checkpoint(f.path, "", "", 0);
    check_refused(&f, "not JSON");
    write_checkpoint(f.path, "[]", "", 0);
    check_refused(&f, "not a JSON object");
    write_checkpoint(f.path, "{\"a\":1,\"a\":1}", "", 0);
    check_refused(&f, "not JSON");
    write_checkpoint(f.path, "{}", "", 0);
    check_refused(&f, "no tensor 'conv.weight'");

    assert_int_equal(remove(f.path), 0);
    assert_int_equal(mkdir(f.path, 0700), 0);
    check_refused(&f, "not a file");
    assert_int_equal(remove(f.path), 0);
    assert_int_equal(mkfifo(f.path, 0600), 0);
    check_refused(&f, "not a file");
}

/* Right files but for one value: `member` of tensor `name` becomes `value` (NULL: goes). */
TEST(test_refuses_wrong_headers)
{
    static const struct {
        const char *name, *member, *value, *reason;
    } rows[] = {
        {"fc.bias", NULL, NULL, "of data"}, /* its bytes are left over */
        {"bn.running_var", NULL, NULL, "but the one before it ends at"},
        {"conv.weight", "shape", "[5,3,1,3]", "has shape [5,3,1,3], the model's has [5,3,3,1]"},
        {"conv.weight", "shape", "[45]", "has shape [45]"},
        {"conv.weight", "shape", "[5,3,3,1.0]", "has shape"},
        {"conv.weight", "shape", "[]", "has shape []"},
        {"conv.weight", "shape", NULL, "has shape ?"},
        {"bn.bias", "dtype", "\"I32\"", "type 'I32'; F64, F32, F16 and BF16 are read"},
        {"bn.bias", "dtype", "\"BF16\"", "has 20 bytes; its shape and type need 10"},
        {"bn.bias", "dtype", "\"F16\"", "has 20 bytes; its shape and type need 10"},
        {"bn.bias", "dtype", "\"F64\"", "has 20 bytes; its shape and type need 40"},
        {"bn.bias", "dtype", "7", "type ''"},
        {"bn.bias", "data_offsets", "[0,20]", "but the one before it ends at"},
        {"bn.bias", "data_offsets", "[200,216]", "but the one before it ends at"},
        {"bn.bias", "data_offsets", "[204,216]", "but the one before it ends at"},
        {"bn.bias", "data_offsets", "[220,200]", "lies at bytes 220 to 200"},
        {"bn.bias", "data_offsets", "[-20,0]", "lies at bytes -20 to 0"},
        {"fc.bias", "data_offsets", "[1520,9223372036854775807]", "lies at bytes"},
        {"fc.bias", "data_offsets", "[1520,9223372036854775808]", "not JSON"},
        {"fc.bias", "data_offsets", "[1520]", "no data_offsets"},
        {"fc.bias", "data_offsets", "[1520,1548,1548]", "no data_offsets"},
        {"fc.bias", "data_offsets", "\"all\"", "no data_offsets"},
        {"fc.bias", "data_offsets", NULL, "no data_offsets"},
    };
    struct fixture f;
    fixture_open(&f, DPB_FP32);
    save(&f, NULL);
    size_t size;
    char *bytes = read_file(f.path, &size);
    uint64_t length;
    memcpy(&length, bytes, 8);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        json_t *header = own_json(json_loadb(bytes + 8, length, 0, NULL));
        json_t *tensor = json_object_get(header, rows[i].name);
        char placeholder[] = "REPLACE";
        if (!rows[i].member)
            json_object_del(header, rows[i].name);
        else if (!rows[i].value)
            json_object_del(tensor, rows[i].member);
        else
            json_object_set_new(tensor, rows[i].member, json_string(placeholder));
        char *text = own_memory(json_dumps(header, JSON_COMPACT), free),
             *at = strstr(text, "\"REPLACE\"");
        char edited[2048];
        if (at)
            snprintf(edited, sizeof edited, "%.*s%s%s", (int)(at - text), text, rows[i].value,
                     at + strlen("\"REPLACE\""));
        else
            snprintf(edited, sizeof edited, "%s", text);
        write_checkpoint(f.path, edited, bytes + 8 + length, size - 8 - length);
        check_refused(&f, rows[i].reason);
    }
}

/* ---- a training under way ------------------------------------------------------------------ */

static const struct dpb_progress under_way = {.step = 123456789012,
                                              .samples = 1ull << 61,
                                              .epoch = 7,
                                              .position = 640,
                                              .trained_ns = 5,
                                              .loss_scale = 1 << 17,
                                              .clean_steps = 999,
                                              .skipped_steps = 3};

/* Saves the fixture with an optimizer's state of 1000 + the index of each element. */
static void save_training(struct fixture *f, const char *name, float *optimizer)
{
    struct dpb_checkpoint checkpoint = checkpoint_of(f, f->weights, f->state);
    for (uint64_t i = 0; i < f->graph->n_elements; i++)
        optimizer[i] = 1000.0f + (float)i;
    checkpoint.optimizer = optimizer;
    checkpoint.optimizer_names[0] = name;
    if (dpb_checkpoint_save(f->path, &checkpoint, &under_way, NULL) != DPB_OK)
        fail_msg("%s", dpb_first_error(NULL));
}

TEST(test_a_training_comes_back)
{
    struct fixture f;
    fixture_open(&f, DPB_FP32);
    size_t bytes = f.graph->n_elements * sizeof(float);
    float *saved = own_memory(malloc(bytes), free), *loaded = own_memory(malloc(bytes), free);
    assert_true(saved && loaded);
    save_training(&f, "momentum_buffer", saved);
    check_load(&f); /* the weights alone */
    assert_false(dpb_warning_at(0, &(const char *){0}, &(const char *){0}));

    struct dpb_checkpoint checkpoint = checkpoint_of(&f, NULL, NULL);
    struct dpb_progress progress;
    checkpoint.optimizer_names[0] = "momentum_buffer";
    assert_int_equal(dpb_checkpoint_check(f.path, &checkpoint, &progress), DPB_OK);
    assert_memory_equal(&progress, &under_way, sizeof progress);

    checkpoint.optimizer = loaded;
    memset(loaded, 0x5a, bytes);
    assert_int_equal(dpb_checkpoint_load(f.path, &checkpoint), DPB_OK);
    for (uint32_t t = 0; t < f.graph->n_tensors; t++) {
        const struct dpb_tensor *tensor = &f.graph->tensors[t];
        assert_memory_equal(loaded + tensor->offset, saved + tensor->offset,
                            tensor->n_elements * sizeof(float));
    }
    /* Weights alone begin with a state of zero. */
    save(&f, NULL);
    memset(loaded, 0x5a, bytes);
    assert_int_equal(dpb_checkpoint_load(f.path, &checkpoint), DPB_OK);
    for (uint64_t i = 0; i < f.graph->n_elements; i++)
        assert_true(loaded[i] == 0.0f);
}

static void check_training_refused(const struct fixture *f, const char *optimizer,
                                   const char *reason)
{
    struct dpb_checkpoint checkpoint = checkpoint_of(f, NULL, NULL);
    struct dpb_progress progress = {.step = 77};
    checkpoint.optimizer_names[0] = optimizer;
    dpb_first_error_clear();
    dpb_status status = dpb_checkpoint_check(f->path, &checkpoint, &progress);
    const char *message = dpb_first_error(NULL);
    if (status != DPB_DATA || !strstr(message, f->path) || !strstr(message, reason))
        fail_msg("expected '%s', got status %d: %s", reason, (int)status, message);
    assert_int_equal(progress.step, 77);
}

TEST(test_refuses_another_training)
{
    struct fixture f;
    fixture_open(&f, DPB_FP32);
    float *momentum = own_memory(malloc(f.graph->n_elements * sizeof(float)), free);
    assert_non_null(momentum);
    save_training(&f, "momentum_buffer", momentum);
    check_training_refused(&f, "sum",
                           "has no 'optimizer.sum.conv.weight': it had another optimizer");

    /* Half an optimizer. */
    size_t size;
    char *bytes = read_file(f.path, &size);
    char *name = memmem(bytes, size, "optimizer.momentum_buffer.fc.bias", 33);
    assert_non_null(name);
    name[32] = 'X';
    write_file(f.path, bytes, size);
    check_training_refused(&f, "momentum_buffer", "'optimizer.momentum_buffer.fc.bias'");

    static const char *const numbers[] = {
        "-1", "", "1e3", " 1", "12x", "18446744073709551616", "9223372036854775808"};
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        const char *const metadata[] = {"dpbench.position", numbers[i], NULL};
        save(&f, metadata);
        check_training_refused(&f, NULL, "dpbench.position");
    }
}

/* Tensors of others are left out with a warning; PyTorch's counters without one. */
TEST(test_other_tensors)
{
    struct fixture f;
    fixture_open(&f, DPB_FP32);
    save(&f, NULL);
    size_t size;
    char *bytes = read_file(f.path, &size);
    uint64_t length, data;
    memcpy(&length, bytes, 8);
    data = size - 8 - length;
    for (int i = 0; i < 2; i++) {
        json_t *header = own_json(json_loadb(bytes + 8, length, 0, NULL));
        json_object_set_new(header, i ? "head.weight" : "bn.num_batches_tracked",
                            json_pack("{s:s, s:[], s:[I,I]}", "dtype", "I64", "shape",
                                      "data_offsets", (json_int_t)data, (json_int_t)data + 8));
        char *text = own_memory(json_dumps(header, 0), free);
        char *longer = own_memory(calloc(1, data + 8), free);
        assert_non_null(longer);
        memcpy(longer, bytes + 8 + length, data);
        write_checkpoint(f.path, text, longer, data + 8);
        check_load(&f);
        const char *code, *warning;
        assert_true(dpb_warning_at(0, &code, &warning) == (i == 1));
        if (i == 1)
            assert_non_null(strstr(warning, "'head.weight'"));
    }
}

/* The fixture's file with `prefix` before its names, and with F32 tensor `twice` of 7 zeros. */
static void write_prefixed(const struct fixture *f, const char *prefix, const char *twice)
{
    size_t size;
    char *bytes = read_file(f->path, &size), name[64];
    uint64_t length;
    memcpy(&length, bytes, 8);
    const size_t n = size - 8 - length;
    json_t *header = own_json(json_loadb(bytes + 8, length, 0, NULL)), *value;
    json_t *prefixed = own_json(json_object());
    const char *key;
    json_object_foreach(header, key, value)
    {
        snprintf(name, sizeof name, "%s%s", key[0] == '_' ? "" : prefix, key);
        json_object_set(prefixed, name, value);
    }
    if (twice)
        json_object_set_new(prefixed, twice,
                            json_pack("{s:s, s:[i], s:[I,I]}", "dtype", "F32", "shape", 7,
                                      "data_offsets", (json_int_t)n, (json_int_t)n + 28));
    char *longer = own_memory(calloc(1, n + 28), free);
    assert_non_null(longer);
    memcpy(longer, bytes + 8 + length, n);
    char *text = own_memory(json_dumps(prefixed, JSON_COMPACT), free);
    write_checkpoint(f->path, text, longer, twice ? n + 28 : n);
}

/* A prefix is no part of a name, and no tensor is there twice. */
TEST(test_prefixes)
{
    static const struct {
        const struct dpb_file_layout *layout;
        const char *prefix, *twice, *refused;
    } rows[] = {
        {NULL, "module.", NULL, NULL},
        {&published, "net.", NULL, NULL},
        {&published, "module.", "module.net.a.3.mask", NULL},
        {&published, "module.net.", NULL, NULL},
        {NULL, "module.", "fc.bias", "has both 'module.fc.bias' and 'fc.bias'"},
        {&published, "net.", "module.a.fc.bias", "both 'net.a.fc.bias' and 'module.a.fc.bias'"},
        {NULL, "modul.", NULL, "has no tensor 'conv.weight'"},
        {&published, "net.module.", NULL, "has no tensor"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct fixture f;
        fixture_open(&f, DPB_FP32);
        use_layout(&f, &published);
        assert_int_equal(save_in(&f, rows[i].layout), DPB_OK);
        write_prefixed(&f, rows[i].prefix, rows[i].twice);
        if (rows[i].refused)
            check_refused(&f, rows[i].refused);
        else
            check_load(&f);
        assert_false(dpb_warning_at(0, &(const char *){0}, &(const char *){0}));
    }
}

/* ------------------------------------------------------------------------------- failing to wri */

static void check_save_fails(const struct fixture *f, const char *path, const char *reason)
{
    dpb_first_error_clear();
    const struct dpb_checkpoint checkpoint = checkpoint_of(f, f->weights, f->state);
    const struct dpb_progress begin = {0};
    dpb_status status = dpb_checkpoint_save(path, &checkpoint, &begin, NULL);
    const char *message = dpb_first_error(NULL);
    if (status != DPB_IO || !strstr(message, path) || !strstr(message, reason))
        fail_msg("expected '%s', got status %d: %s", reason, (int)status, message);
}

TEST(test_keeps_the_old_file)
{
    struct fixture f;
    fixture_open(&f, DPB_FP32);
    save(&f, NULL);

    fixture_fill(&f, 2);
    struct rlimit limit, small;
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &limit), 0);
    small = (struct rlimit){.rlim_cur = 1000, .rlim_max = limit.rlim_max};
    signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
    check_save_fails(&f, f.path, "File too large; an older file is unchanged");
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
    assert_int_equal(count_files(&f, false), 1);

    fixture_fill(&f, 1);
    check_load(&f);
}

TEST(test_evaluations)
{
    static const struct dpb_eval evals[] = {
        {5, 1, 40, 123456789, 0.1 / 3, 7, 9, 10, 10},
        {10, UINT64_MAX, UINT64_MAX, INT64_MAX, 1.7976931348623157e308, 0, 0, 0, 0}};
    static const char *const damaged[] = {"5 1 40 1 0.5 7 9 10",
                                          "5 1 40 1 0.5 7 9 10 10",
                                          "5 1 40 -1 0.5 7 9 10 10;",
                                          "5 1 40 1 x 7 9 10 10;",
                                          "5 1 40 1 0.5 11 9 10 10;",
                                          "5 1 40 1 0.5 7 9 10 10;;",
                                          "1 1 1 1 1 1 1 1 1;1 1 1 1 1 1 1 1 1;1 1 1 1 1 1 1 1 1;"};
    struct fixture f;
    struct dpb_eval found[2];
    uint64_t n;
    fixture_open(&f, DPB_FP32);
    save(&f, NULL);
    assert_int_equal(dpb_evaluations_read(f.path, found, 2, &n), DPB_OK);
    assert_int_equal(n, 0);
    char *text = dpb_evaluations_text(evals, 2);
    const char *const metadata[] = {DPB_EVALUATIONS_KEY, text, NULL};
    save(&f, metadata);
    free(text);
    assert_int_equal(dpb_evaluations_read(f.path, found, 2, &n), DPB_OK);
    assert_int_equal(n, 2);
    assert_memory_equal(found, evals, sizeof evals);
    for (size_t i = 0; i < sizeof damaged / sizeof *damaged; i++) {
        const char *const wrong[] = {DPB_EVALUATIONS_KEY, damaged[i], NULL};
        save(&f, wrong);
        assert_int_equal(dpb_evaluations_read(f.path, found, 2, &n), DPB_DATA);
    }
}

TEST(test_names_where_it_cannot_write)
{
    struct fixture f;
    fixture_open(&f, DPB_FP32);
    save(&f, NULL);
    char path[160];
    snprintf(path, sizeof path, "%s/missing/net.safetensors", f.directory);
    check_save_fails(&f, path, "No such file or directory");
    snprintf(path, sizeof path, "%s/below", f.path);
    check_save_fails(&f, path, "Not a directory");
    if (geteuid() != 0) { /* root may write anywhere */
        assert_int_equal(chmod(f.directory, 0500), 0);
        fixture_fill(&f, 2);
        check_save_fails(&f, f.path, "Permission denied");
        assert_int_equal(chmod(f.directory, 0700), 0);
        fixture_fill(&f, 1);
    }
    check_load(&f);
    snprintf(path, sizeof path, "%s/directory", f.directory);
    assert_int_equal(mkdir(path, 0700), 0);
    check_save_fails(&f, path, "Is a directory; it is "); /* the only copy */
    assert_int_equal(count_files(&f, false), 3);
}

TEST_MAIN(silence, NULL)
