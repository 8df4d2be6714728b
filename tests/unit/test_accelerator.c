/* test_accelerator.c - the reader of profiles: what it takes from a document, what it refuses by
 * which words, and that a damaged document does not end the process. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "emulate/made.h"
#include "lib/accelerator/accelerator.h"
#include "lib/own.h"
#include "lib/says.h"
#include "lib/test.h"

static const char good[] =
    "{'schema': 'dpbench.profile/1', 'accelerator': 'V100', 'model': 'two', 'precision': 'fp32',"
    " 'kind': 'measured', 'source': 'a test', 'batch': 64, 'macs_per_sample': 3857973248,"
    " 'forward_ns': 61000000, 'backward_ns': 122000000.4, 'spread': 0.01, 'common': 0.8,"
    " 'warmup': [3.0, 1.25], 'update_elements_per_s': 2.5e10, 'tensors': ["
    "{'name': 'b', 'elements': 2048000, 'ready_ns': 1200000},"
    "{'name': 'a', 'elements': 7, 'ready_ns': 122000000}]}";

/* The document of a text, where ' stands for ". */
static json_t *parse(const char *text)
{
    char quoted[2048];
    snprintf(quoted, sizeof quoted, "%s", text);
    for (char *at = quoted; *at != '\0'; at++)
        *at = *at == '\'' ? '"' : *at;
    return json_loads(quoted, 0, NULL);
}

TEST(test_values)
{
    struct dpb_accelerator profile;
    char why[DPB_ACCELERATOR_WHY];
    json_t *document = own_json(parse(good));
    assert_true(dpb_accelerator_take(document, "p.json", &profile, why));
    assert_string_equal(profile.name, "V100");
    assert_string_equal(profile.model, "two");
    assert_string_equal(profile.kind, "measured");
    assert_string_equal(profile.source, "a test");
    assert_int_equal(profile.batch, 64);
    assert_int_equal(profile.macs, 3857973248);
    assert_int_equal(profile.forward_ns, 61000000);
    assert_int_equal(profile.backward_ns, 122000000);
    assert_true(profile.spread == 0.01 && profile.common == 0.8);
    assert_true(profile.n_warmup == 2 && profile.warmup[0] == 3 && profile.warmup[1] == 1.25);
    assert_true(profile.update_elements_per_s == 2.5e10);
    assert_int_equal(profile.n_tensors, 2);
    assert_string_equal(profile.tensors[1].name, "a");
    assert_int_equal(profile.tensors[1].n_elements, 7);
    assert_int_equal(profile.tensors[1].ready_ns, 122000000);
    assert_int_equal(profile.n_parameters, 2048007);
    dpb_accelerator_release(&profile);

    static const char *const optional[] = {"macs_per_sample", "common", "warmup",
                                           "update_elements_per_s"};
    for (size_t i = 0; i < sizeof optional / sizeof optional[0]; i++)
        json_object_del(document, optional[i]);
    assert_true(dpb_accelerator_take(document, "p.json", &profile, why));
    assert_true(profile.macs == 0 && profile.common == 1 && profile.n_warmup == 0);
    assert_true(profile.update_elements_per_s == 0);
    dpb_accelerator_release(&profile);
}

/* The good document with one piece replaced. */
static const struct refused {
    const char *piece, *by, *word;
} refused[] = {
    {"profile/1", "profile/2", "this is no profile, schema dpbench.profile/1"},
    {"'schema'", "'scheme'", "this is no profile"},
    {"'V100'", "''", "'accelerator' is no text"},
    {"'two'", "2", "'model' is no text"},
    {"'fp32'", "null", "'precision' is no text"},
    {"'measured'", "'guessed'", "'kind' is none of measured, published, estimated"},
    {"'source'", "'sauce'", "'source' is no text"},
    {": 64", ": 0", "'batch' is no number from 1"},
    {": 64", ": 1.5", "'batch' is 1.5"},
    {": 64", ": '64'", "'batch' is no number"},
    {"3857973248", "-1", "'macs_per_sample' is no number from 0"},
    {"61000000", "-1", "'forward_ns' is no number from 0"},
    {"61000000", "1e13", "'forward_ns' is no number from 0"},
    {"122000000.4", "0", "'backward_ns' is no number from 1"},
    {"'spread'", "'spray'", "'spread' is no number from 0 to 1"},
    {"0.01", "1.01", "'spread' is no number from 0 to 1"},
    {"0.8", "1.5", "'common' is no number from 0 to 1"},
    {"[3.0, 1.25]", "3", "'warmup' is no list"},
    {"3.0", "0", "'warmup' has a value that is no number above 0"},
    {"2.5e10", "-2", "'update_elements_per_s' is no number"},
    {"'tensors'", "'tenors'", "'tensors' is no list of 1 to 8192 tensors"},
    {"{'name': 'b'", "{'mane': 'b'", "'name' is no text"},
    {": 7", ": 0", "'elements' is no number from 1"},
    {": 7", ": 1e300", "'elements' is no number from 1"},
    {": 7", ": 7.5", "tensor 'a' has 7.5 elements"},
    {"'ready_ns': 122000000}", "'ready_ns': 122000001}", "'ready_ns' is no number from 0"},
    {"'ready_ns': 122000000}", "'ready_ns': 1199999}",
     "tensor 'a' is ready before the one before it"},
    {": 7", ": 4294967296", "'elements' is no number from 1"},
};

TEST(test_refusals)
{
    for (size_t i = 0; i < sizeof refused / sizeof refused[0]; i++) {
        const struct refused *row = &refused[i];
        const char *at = strstr(good, row->piece);
        char text[2048], why[DPB_ACCELERATOR_WHY] = "";
        struct dpb_accelerator profile;
        assert_non_null(at);
        snprintf(text, sizeof text, "%.*s%s%s", (int)(at - good), good, row->by,
                 at + strlen(row->piece));
        json_t *document = own_json(parse(text));
        assert_non_null(document);
        if (dpb_accelerator_take(document, "p.json", &profile, why))
            fail_msg("taken: %s", row->word);
        EXPECT_WORDS(row->word, why, row->word, "p.json: ");
    }
}

TEST(test_files)
{
    struct dpb_accelerator profile;
    char why[DPB_ACCELERATOR_WHY], path[] = "/tmp/dpb_accelerator_XXXXXX";
    const int fd = mkstemp(path);
    assert_true(fd >= 0 && write(fd, "{\"a\": 1, \"a\": 2}", 16) == 16 && close(fd) == 0);
    assert_false(dpb_accelerator_read(path, &profile, why));
    expect_part(why, "duplicate object key");
    unlink(path);
    assert_false(dpb_accelerator_read(path, &profile, why));
    expect_part(why, "No such file");
    assert_false(dpb_accelerator_read("no_such_accelerator", &profile, why));
    expect_part(why, "no_such_accelerator: ");
}

/* A number that is one of those that break readers, or a small one. */
static json_t *draw_value(uint32_t *seed)
{
    static const double numbers[] = {0, -1, 1e300, -1e300, 0.5, 1e18, 9e15, 65537, 3.6e12};
    *seed = *seed * 1664525 + 1013904223;
    const uint32_t drawn = *seed >> 8;
    switch (drawn % 7) {
    case 0:
        return json_null();
    case 1:
        return json_string(drawn % 2 ? "" : "\x1b[31m");
    case 2:
        return json_array();
    case 3:
        return json_object();
    case 4:
        return json_integer(drawn % 3 ? INT64_MIN : INT64_MAX);
    default:
        return json_real(numbers[drawn % 9]);
    }
}

/* Replaces, removes or adds a member of the document or of one of its tensors. */
static void damage(json_t *document, uint32_t *seed)
{
    *seed = *seed * 1664525 + 1013904223;
    const uint32_t drawn = *seed >> 8;
    json_t *tensors = json_object_get(document, "tensors");
    json_t *object = drawn % 2 ? document : json_array_get(tensors, (drawn >> 1) % 3);
    if (!json_is_object(object) || (drawn >> 4) % 16 == 0) {
        json_array_append(tensors, json_array_get(tensors, 0));
        return;
    }
    void *member = json_object_iter(object);
    for (uint32_t k = (drawn >> 4) % (uint32_t)(json_object_size(object) + 1); k > 1; k--)
        member = json_object_iter_next(object, member);
    if (member && drawn % 5 == 0)
        json_object_del(object, json_object_iter_key(member));
    else if (member)
        json_object_iter_set_new(object, member, draw_value(seed));
}

/* Each is taken, and can be shown, or is refused with a reason. */
/* The tensors of a share: rounded up, in the same times. */
TEST(test_share)
{
    static const char *const none[] = {"/0", "/04", "/12345", "/x"};
    struct dpb_accelerator profile;
    char why[DPB_ACCELERATOR_WHY], path[64] = "/tmp/dpb_accelerator_XXXXXX", shared[96];
    json_t *document = own_json(parse(good));
    const int fd = mkstemp(path);
    assert_true(fd >= 0 && json_dumpfd(document, fd, 0) == 0 && close(fd) == 0);
    snprintf(shared, sizeof shared, "%s/4", path);
    assert_true(dpb_accelerator_read(shared, &profile, why));
    assert_int_equal(profile.tensors[0].n_elements, 512000);
    assert_int_equal(profile.tensors[1].n_elements, 2);
    assert_int_equal(profile.n_parameters, 512002);
    assert_int_equal(profile.backward_ns, 122000000);
    assert_true(profile.update_elements_per_s == 2.5e10 / 4);
    assert_string_equal(profile.source, "tensors of 1/4 of their size; a test");
    dpb_accelerator_release(&profile);
    for (size_t i = 0; i < sizeof none / sizeof none[0]; i++) {
        snprintf(shared, sizeof shared, "%s%s", path, none[i]);
        assert_false(dpb_accelerator_read(shared, &profile, why));
    }
    unlink(path);
    assert_true(dpb_accelerator_read("v100_vgg16/64", &profile, why));
    assert_int_equal(profile.n_tensors, 32);
    dpb_accelerator_release(&profile);
}

TEST(test_damaged)
{
    enum { DOCUMENTS = SANITIZED ? 2000 : 10000 };
    uint32_t seed = 20261130, n_taken = 0;
    FILE *out = fopen("/dev/null", "w");
    json_t *whole = own_json(parse(good));
    assert_non_null(out);
    for (int i = 0; i < DOCUMENTS; i++) {
        struct dpb_accelerator profile;
        char why[DPB_ACCELERATOR_WHY] = "";
        json_t *document = json_deep_copy(whole);
        for (uint32_t k = 0; k <= (seed >> 16) % 3; k++)
            damage(document, &seed);
        if (dpb_accelerator_take(document, "p.json", &profile, why)) {
            n_taken++;
            assert_true(profile.n_tensors > 0 && profile.backward_ns > 0 && profile.batch > 0);
            dpb_profile_show(document, out);
            dpb_profile_write(document, out);
            dpb_accelerator_release(&profile);
        } else if (why[0] == '\0') {
            fail_msg("document %d is refused without a reason", i);
        }
        json_decref(document);
    }
    fclose(out);
    assert_in_range(n_taken, DOCUMENTS / 100, DOCUMENTS / 2);
}

TEST_MAIN(NULL, NULL)
