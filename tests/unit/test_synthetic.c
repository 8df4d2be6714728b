/*
 * test_synthetic.c - the synthetic data plugin: the same numbers whatever the order of access, mean
 * and deviation as promised, classes that can be learned, memory within its limit.
 */
#include <math.h>

#include "data_source.h"
#include "dpbench/random.h"
#include "lib/capture.h"

static const struct dpb_data_request digits = {.shape = {1, 28, 28}, .nclass = 10, .seed = 5};
static const struct dpb_data_request photos = {.shape = {3, 224, 224}, .nclass = 1000, .seed = 5};

static struct source open_with(const struct dpb_data_request *request, const char *first,
                               const char *second)
{
    const char *const assignments[] = {first, first ? second : NULL, NULL};
    struct source source;
    assert_int_equal(source_open("synthetic", request, assignments, &source), DPB_OK);
    return source;
}

/* Sample `index` as the device sees it: normalised. @owned. */
static float *sample_of(const struct source *source, dpb_split split, uint64_t index,
                        int32_t *label)
{
    const struct dpb_sample_format *format = &source->info.format;
    uint64_t n = dpb_shape_elements(format->shape), plane = n / format->shape.c;
    void *raw = calloc(1, dpb_sample_bytes(format));
    float *values = calloc(n, sizeof *values);
    assert_true(raw && values);
    assert_int_equal(source->ops->fetch(source->handle, split, 0, &index, 1, raw, label), DPB_OK);
    for (uint64_t i = 0; i < n; i++) {
        float value = format->type == DPB_UINT8 ? ((uint8_t *)raw)[i] : ((float *)raw)[i];
        values[i] = value * format->scale[i / plane] + format->offset[i / plane];
    }
    free(raw);
    return values;
}

static bool equal(const struct source *a, dpb_split split_a, uint64_t index_a,
                  const struct source *b, dpb_split split_b, uint64_t index_b)
{
    int32_t label_a, label_b;
    float *x = sample_of(a, split_a, index_a, &label_a);
    float *y = sample_of(b, split_b, index_b, &label_b);
    size_t bytes = dpb_shape_elements(a->info.format.shape) * sizeof *x;
    bool result = label_a == label_b && memcmp(x, y, bytes) == 0;
    free(x);
    free(y);
    return result;
}

TEST(test_shape_and_classes_of_the_model)
{
    const struct dpb_data_request *const requests[] = {&digits, &photos};
    for (size_t i = 0; i < 2; i++) {
        struct source source = open_with(requests[i], "data.samples=2000", "data.test_samples=300");
        assert_memory_equal(&source.info.format.shape, &requests[i]->shape,
                            sizeof(struct dpb_shape));
        assert_int_equal(source.info.nclass, requests[i]->nclass);
        assert_int_equal(source.info.n_samples[DPB_TRAIN], 2000);
        assert_int_equal(source.info.n_samples[DPB_TEST], 300);
        assert_int_equal(source.info.format.type, DPB_UINT8);
        for (uint64_t k = 0; k < 300; k++) {
            uint8_t sample[3 * 224 * 224];
            int32_t label;
            source.ops->fetch(source.handle, DPB_TEST, 0, &k, 1, sample, &label);
            assert_in_range(label, 0, requests[i]->nclass - 1);
        }
        source_close(&source);
    }
}

TEST(test_a_pure_function_of_seed_and_sample)
{
    struct dpb_data_request other_seed = digits;
    other_seed.seed = 6;
    struct source a = open_with(&digits, "data.distinct=50", NULL);
    struct source b = open_with(&digits, "data.distinct=70", "data.samples=90");
    struct source c = open_with(&other_seed, "data.distinct=50", NULL);
    for (uint64_t i = 50; i-- > 0;) {
        assert_true(equal(&a, DPB_TRAIN, i, &b, DPB_TRAIN, i));
        assert_true(equal(&a, DPB_TEST, i, &b, DPB_TEST, i));
        assert_false(equal(&a, DPB_TRAIN, i, &c, DPB_TRAIN, i));
        assert_false(equal(&a, DPB_TRAIN, i, &a, DPB_TEST, i));
        assert_false(equal(&a, DPB_TRAIN, i, &a, DPB_TRAIN, (i + 1) % 50));
        assert_true(equal(&a, DPB_TRAIN, i, &a, DPB_TRAIN, i + 50));
        assert_true(equal(&a, DPB_TRAIN, i, &a, DPB_TRAIN, i + 50 * 900));
    }

    /* All at once, backwards, is the same as one by one. */
    uint64_t indices[20];
    uint8_t batch[20][28 * 28], sample[28 * 28];
    int32_t labels[20], label;
    for (uint64_t i = 0; i < 20; i++)
        indices[i] = 40 - 2 * i;
    a.ops->fetch(a.handle, DPB_TRAIN, 3, indices, 20, batch, labels);
    for (uint64_t i = 0; i < 20; i++) {
        a.ops->fetch(a.handle, DPB_TRAIN, 0, &indices[i], 1, sample, &label);
        assert_memory_equal(batch[i], sample, sizeof sample);
        assert_int_equal(labels[i], label);
    }
    source_close(&a);
    source_close(&b);
    source_close(&c);
}

/* The formula at the head of the plugin, element by element, also where cells have no pixel. */
TEST(test_every_element_is_the_formula)
{
    static const struct dpb_shape shapes[] = {{3, 9, 9}, {2, 3, 5}, {1, 28, 28}, {2, 17, 70}};
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        const struct dpb_data_request request = {.shape = shapes[i], .nclass = 5, .seed = 11};
        struct source source = open_with(&request, "data.distinct=3", "data.type=fp32");
        uint32_t w = shapes[i].w, h = shapes[i].h;
        for (uint32_t number = 0; number < 3; number++) {
            int32_t label;
            float *values = sample_of(&source, DPB_TRAIN, number, &label);
            for (uint32_t k = 0; k < shapes[i].c * h * w; k++) {
                uint32_t y = k / w % h * 8 / h, x = k % w * 8 / w;
                struct dpb_random4 bits = dpb_random(
                    11, DPB_STREAM_SYNTHETIC, UINT32_MAX - (uint32_t)label, k / (h * w), 0, 0);
                struct dpb_random4 u = dpb_random(11, DPB_STREAM_SYNTHETIC, number, k / 4, 0, 0);
                float p = (float)(bits.v[y / 4] >> (y % 4 * 8 + x) & 1);
                assert_true(values[k] == p + 3.0f * dpb_random_uniform(u.v[k % 4]) - 2.0f);
            }
            free(values);
        }
        source_close(&source);
    }
}

TEST(test_normalised_in_both_types)
{
    struct source u8 = open_with(&digits, "data.distinct=400", "data.type=uint8");
    struct source f32 = open_with(&digits, "data.distinct=400", "data.type=fp32");
    assert_int_equal(u8.info.format.type, DPB_UINT8);
    assert_int_equal(f32.info.format.type, DPB_FP32);
    double sum = 0, squares = 0, n = 400 * 28 * 28;
    for (uint64_t i = 0; i < 400; i++) {
        int32_t label_u8, label_f32;
        float *x = sample_of(&u8, DPB_TRAIN, i, &label_u8);
        float *y = sample_of(&f32, DPB_TRAIN, i, &label_f32);
        assert_int_equal(label_u8, label_f32);
        for (int k = 0; k < 28 * 28; k++) {
            assert_true(fabsf(x[k] - y[k]) <= 1.0f / 128 + 1e-5f);
            assert_true(y[k] >= -2 && y[k] < 2);
            sum += x[k];
            squares += (double)x[k] * x[k];
        }
        free(x);
        free(y);
    }
    assert_true(fabs(sum / n) < 0.03); /* ten patterns of 64 fair bits: 0.02 */
    assert_true(fabs(sqrt(squares / n) - 1) < 0.02);
    source_close(&u8);
    source_close(&f32);
}

/* Means of the classes over training samples classify test samples. */
TEST(test_classes_can_be_learned)
{
    enum { N = 28 * 28, TRAIN = 500, TEST = 200 };
    static double mean[10][N];
    int count[10] = {0}, correct = 0;
    struct source source = open_with(&digits, "data.distinct=500", NULL);
    for (uint64_t i = 0; i < TRAIN; i++) {
        int32_t label;
        float *x = sample_of(&source, DPB_TRAIN, i, &label);
        count[label]++;
        for (int k = 0; k < N; k++)
            mean[label][k] += x[k];
        free(x);
    }
    for (uint64_t i = 0; i < TEST; i++) {
        int32_t label, best = 0;
        double least = INFINITY;
        float *x = sample_of(&source, DPB_TEST, i, &label);
        for (int32_t c = 0; c < 10; c++) {
            double distance = 0;
            for (int k = 0; k < N; k++)
                distance += pow(x[k] - mean[c][k] / count[c], 2);
            if (distance < least) {
                least = distance;
                best = c;
            }
        }
        correct += best == label;
        free(x);
    }
    for (int c = 0; c < 10; c++)
        assert_in_range(count[c], 25, 80); /* 50 expected */
    assert_true(correct > TEST * 95 / 100);
    source_close(&source);
}

/* ---- ids of tokens ------------------------------------------------------------------------- */

enum { LENGTH = 700 }; /* random words are made in blocks of 256: none repeats another */

struct sequence {
    int32_t ids[LENGTH], labels[LENGTH];
};

static struct source open_ids(uint64_t seed, uint32_t nclass, const char *more)
{
    const struct dpb_data_request request = {
        .shape = {1, 1, LENGTH}, .nclass = nclass, .ids = true, .seed = seed};
    struct source source = open_with(&request, "data.test_samples=40", more);
    assert_int_equal(source.info.format.type, DPB_INT32);
    assert_int_equal(source.info.format.shape.w, LENGTH);
    assert_int_equal(source.info.nclass, nclass);
    return source;
}

static struct sequence sequence_of(const struct source *source, dpb_split split, uint64_t index)
{
    struct sequence sequence;
    assert_int_equal(
        source->ops->fetch(source->handle, split, 0, &index, 1, sequence.ids, sequence.labels),
        DPB_OK);
    return sequence;
}

TEST(test_ids_and_the_next_ones)
{
    static const uint32_t classes[] = {2, 256, 50257, 1 << 30};
    for (size_t i = 0; i < sizeof classes / sizeof *classes; i++) {
        struct source source = open_ids(5, classes[i], "data.distinct=30");
        int n_next = 0, n_last = 0; /* that follow by the formula: all, and the last labels */
        for (uint64_t k = 0; k < 30; k++) {
            const struct sequence s = sequence_of(&source, k < 15 ? DPB_TRAIN : DPB_TEST, k);
            assert_memory_not_equal(s.ids + 100, s.ids + 356, 100 * sizeof *s.ids);
            for (int at = 0; at < LENGTH; at++) {
                assert_in_range(s.ids[at], 0, classes[i] - 1);
                assert_in_range(s.labels[at], 0, classes[i] - 1);
                if (at + 1 < LENGTH)
                    assert_int_equal(s.labels[at], s.ids[at + 1]);
                const bool follows =
                    s.labels[at] == (int32_t)((s.ids[at] * INT64_C(5) + 7) % classes[i]);
                n_next += follows;
                n_last += follows && at + 1 == LENGTH;
            }
        }
        assert_in_range(n_last, 12, 30);
        /* Three of four, and those that any are by chance; within six standard deviations. */
        const double n = 30.0 * LENGTH, wanted = 0.75 + 0.25 / classes[i];
        assert_true(fabs(n_next / n - wanted) < 6 * sqrt(wanted * (1 - wanted) / n));
        source_close(&source);
    }
}

TEST(test_ids_depend_on_seed_and_sample)
{
    struct source a = open_ids(5, 256, "data.distinct=20");
    struct source b = open_ids(5, 256, "data.distinct=30");
    struct source c = open_ids(6, 256, "data.distinct=20");
    for (uint64_t i = 20; i-- > 0;) {
        for (int split = 0; split < 2; split++) {
            const struct sequence s = sequence_of(&a, (dpb_split)split, i);
            const struct sequence same = sequence_of(&b, (dpb_split)split, i);
            const struct sequence repeated = sequence_of(&a, (dpb_split)split, i + 20);
            const struct sequence other = sequence_of(&c, (dpb_split)split, i);
            const struct sequence next = sequence_of(&a, (dpb_split)split, (i + 1) % 20);
            assert_memory_equal(&s, &same, sizeof s);
            assert_memory_equal(&s, &repeated, sizeof s);
            assert_memory_not_equal(&s, &other, sizeof s);
            assert_memory_not_equal(&s, &next, sizeof s);
        }
        const struct sequence train = sequence_of(&a, DPB_TRAIN, i);
        const struct sequence test = sequence_of(&a, DPB_TEST, i);
        assert_memory_not_equal(&train, &test, sizeof train);
    }

    /* Several at once are the same as one by one, and the pool has them, too. */
    const uint64_t indices[] = {3, 19, 0};
    int32_t ids[3][LENGTH], labels[3][LENGTH];
    struct dpb_sample_pool pool;
    assert_int_equal(a.ops->fetch(a.handle, DPB_TEST, 0, indices, 3, ids, (int32_t *)labels),
                     DPB_OK);
    assert_int_equal(a.ops->pool(a.handle, DPB_TEST, &pool), DPB_OK);
    assert_int_equal(pool.n, 20);
    for (size_t i = 0; i < 3; i++) {
        const struct sequence s = sequence_of(&a, DPB_TEST, indices[i]);
        assert_memory_equal(ids[i], s.ids, sizeof s.ids);
        assert_memory_equal(labels[i], s.labels, sizeof s.labels);
        assert_memory_equal((const int32_t *)pool.samples + indices[i] * LENGTH, s.ids,
                            sizeof s.ids);
        assert_memory_equal(pool.labels + indices[i] * LENGTH, s.labels, sizeof s.labels);
    }
    source_close(&a);
    source_close(&b);
    source_close(&c);
    assert_int_equal(allocated_bytes, 0);
}

TEST(test_memory_stays_small)
{
    const char *const types[] = {"data.type=uint8", "data.type=fp32"};
    for (int i = 0; i < 2; i++) {
        size_t before = allocated_bytes;
        struct source source = open_with(&photos, "data.samples=1281167", types[i]);
        assert_true(allocated_bytes - before > 15u << 20);
        assert_true(allocated_bytes - before < 17u << 20);
        source_close(&source);
        assert_int_equal(allocated_bytes, before);
    }
    /* One that only wants to know makes no samples. */
    struct dpb_data_request info_only = photos;
    info_only.info_only = true;
    struct source source = open_with(&info_only, "data.samples=1281167", NULL);
    assert_int_equal(source.info.n_samples[DPB_TRAIN], 1281167);
    assert_int_equal(source.info.format.shape.h, 224);
    assert_true(allocated_bytes < 1u << 20);
    source_close(&source);
}

TEST(test_what_cannot_be_made_is_refused)
{
    static const struct {
        struct dpb_data_request request;
        const char *message;
    } cases[] = {
        {{.shape = {5, 8, 8}, .nclass = 10}, "asks for 5 x 8 x 8"},
        {{.shape = {1, 0, 8}, .nclass = 10}, "asks for 1 x 0 x 8"},
        {{.shape = {1, UINT32_MAX, UINT32_MAX}, .nclass = 10}, "4294967295 x 4294967295"},
        {{.shape = {1, 8, 8}, .nclass = 0}, "classes; the model asks for 0"},
    };
    const char *const none[] = {NULL};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct source source;
        assert_int_equal(source_open("synthetic", &cases[i].request, none, &source),
                         DPB_UNSUPPORTED);
        if (!strstr(dpb_first_error(NULL), cases[i].message))
            fail_msg("'%s' is not in '%s'", cases[i].message, dpb_first_error(NULL));
        source_close(&source);
    }
}

TEST_MAIN(silence, NULL)
