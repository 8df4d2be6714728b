/* needs: jpeg native */
/*
 * test_image_damage.c - the image_folder data plugin on files and directories that are damaged,
 * hostile or in each other's way: skipped and counted, or refused, always by name.
 */
#include <stdio.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "data_source.h"
#include "jpeg_files.h"
#include "lib/command.h"
#include "lib/sandbox.h"

enum { SIDE = 16, BYTES = SIDE * SIDE * 3, IMAGES = 8 };

static const struct dpb_data_request request = {
    .shape = {3, SIDE, SIDE}, .nclass = 2, .seed = 7, .n_workers = 1};

static dpb_status open_set(const char *path, const struct dpb_data_request *asked,
                           const char *first, const char *second, struct source *source)
{
    char text[8192];
    snprintf(text, sizeof text, "data.path=%s", path);
    const char *const assignments[] = {text, first, first ? second : NULL, NULL};
    return source_open("image_folder", asked, assignments, source);
}

static void assert_says(const char *title, const char *part)
{
    if (!strstr(dpb_first_error(NULL), part))
        fail_msg("%s: '%s' is not in '%s'", title, part, dpb_first_error(NULL));
}

static void make_directory(const char *set, const char *name)
{
    char path[256];
    snprintf(path, sizeof path, "%s/%s", set, name);
    if (mkdir(path, 0777) != 0)
        fail_msg("%s cannot be made", path);
}

/* Image i of class a (0 .. 3) or b (4 .. 7) is a noisy picture of its own; val has one of each. */
static void make_set(const char *set)
{
    static const char *const parts[] = {"", "train", "train/a", "train/b", "val", "val/a", "val/b"};
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        make_directory(set, parts[i]);
    for (uint32_t i = 0; i < IMAGES + 2; i++) {
        char path[256];
        snprintf(path, sizeof path, "%s/%s/%s/%u.jpg", set, i < IMAGES ? "train" : "val",
                 i < 4 || i == IMAGES ? "a" : "b", i);
        struct picture picture = picture_gradient(40 + i, 50);
        for (uint32_t k = 0; k < picture.w * picture.h * 3; k += 3)
            picture.pixels[k] = (uint8_t)(k * (i + 3) >> 3);
        put_picture(path, picture, (struct jpeg_form){0});
    }
}

/* ---- unreadable images --------------------------------------------------------------------- */

struct blob {
    uint8_t *bytes; /* of malloc */
    size_t n;
};

static struct blob encode(uint32_t w, uint32_t h, bool progressive)
{
    struct picture picture = picture_gradient(w, h);
    struct blob blob;
    blob.n = jpeg_encode(&picture, (struct jpeg_form){.progressive = progressive}, &blob.bytes);
    free(picture.pixels);
    return blob;
}

/* Where the first marker of a kind begins. */
static size_t find_marker(const struct blob *blob, uint8_t marker, size_t from)
{
    for (size_t i = from; i + 1 < blob->n; i++) {
        if (blob->bytes[i] == 0xff && blob->bytes[i + 1] == marker)
            return i;
    }
    fail_msg("there is no marker %02x", marker);
    return 0;
}

static void make_empty(const char *path)
{
    put_bytes(path, "", 0);
}

static void make_png(const char *path)
{
    put_bytes(path, "\x89PNG\r\n\x1a\n\0\0\0\rIHDR", 16);
}

static void make_truncated(const char *path)
{
    struct blob blob = encode(60, 60, false);
    put_bytes(path, blob.bytes, blob.n / 2);
    free(blob.bytes);
}

static void make_endless(const char *path) /* all but the end of the image */
{
    struct blob blob = encode(60, 60, false);
    put_bytes(path, blob.bytes, blob.n - 2);
    free(blob.bytes);
}

static void make_headers_only(const char *path)
{
    struct blob blob = encode(60, 60, false);
    size_t n = find_marker(&blob, 0xda, 0);
    blob.bytes[n + 1] = 0xd9;
    put_bytes(path, blob.bytes, n + 2);
    free(blob.bytes);
}

/* Restart markers that nobody announced end every block before its time. */
static void make_scrambled(const char *path)
{
    struct blob blob = encode(200, 200, false);
    size_t at = find_marker(&blob, 0xda, 0) + 14;
    for (size_t i = at; i + 4 < blob.n; i += 40)
        memcpy(blob.bytes + i, "\xff\xd3", 2);
    put_bytes(path, blob.bytes, blob.n);
    free(blob.bytes);
}

/* What was decoded before it has such tables: they must not serve here. */
static void make_without_tables(const char *path)
{
    struct blob blob = encode(60, 60, false);
    for (size_t at = 0; at + 1 < blob.n; at++) {
        if (blob.bytes[at] == 0xff && blob.bytes[at + 1] == 0xdb)
            blob.bytes[at + 1] = 0xe9; /* an application's */
    }
    put_bytes(path, blob.bytes, blob.n);
    free(blob.bytes);
}

/* Says it is 65,500 x 65,500 (libjpeg's limit), and would be decoded in memory as a whole. */
static void make_bomb(const char *path)
{
    struct blob blob = encode(60, 60, true);
    size_t at = find_marker(&blob, 0xc2, 0);
    memcpy(blob.bytes + at + 5, "\xff\xdc\xff\xdc", 4);
    put_bytes(path, blob.bytes, blob.n);
    free(blob.bytes);
}

static void make_larger_bomb(const char *path)
{
    struct blob blob = encode(60, 60, false);
    size_t at = find_marker(&blob, 0xc0, 0);
    memcpy(blob.bytes + at + 5, "\xff\xff\xff\xff", 4);
    put_bytes(path, blob.bytes, blob.n);
    free(blob.bytes);
}

static void make_scan_bomb(const char *path)
{
    struct blob blob = encode(60, 60, true);
    size_t scan = find_marker(&blob, 0xda, 0), next = find_marker(&blob, 0xc4, scan);
    struct blob bomb = {calloc(200, next - scan + blob.n), 0};
    assert_non_null(bomb.bytes);
    memcpy(bomb.bytes, blob.bytes, bomb.n = next);
    for (int i = 0; i < 150; i++, bomb.n += next - scan)
        memcpy(bomb.bytes + bomb.n, blob.bytes + scan, next - scan);
    memcpy(bomb.bytes + bomb.n, blob.bytes + next, blob.n - next);
    put_bytes(path, bomb.bytes, bomb.n + blob.n - next);
    free(blob.bytes);
    free(bomb.bytes);
}

static void make_pipe(const char *path)
{
    assert_int_equal(mkfifo("fifo", 0666), 0);
    assert_int_equal(symlink("../../../fifo", path), 0);
}

static void make_dangling(const char *path)
{
    assert_int_equal(symlink("nowhere", path), 0);
}

static void make_circle(const char *path)
{
    assert_int_equal(symlink("3.jpg", path), 0);
}

static void make_link_to_directory(const char *path)
{
    assert_int_equal(symlink("..", path), 0);
}

/* A sparse file larger than any picture of max_pixels. */
static void make_huge(const char *path)
{
    put_bytes(path, "\xff\xd8", 2);
    assert_int_equal(truncate(path, (off_t)1 << 40), 0);
}

static const struct damage {
    const char *name;
    void (*make)(const char *path);
    const char *reason;
} damages[] = {
    {"empty", make_empty, "the file is empty"},
    {"png", make_png, "not a JPEG file"},
    {"truncated", make_truncated, "truncated: there is no end of the image"},
    {"endless", make_endless, "truncated: there is no end of the image"},
    {"headers", make_headers_only, "there is no image in it"},
    {"scrambled", make_scrambled, "Corrupt JPEG data"},
    {"tables", make_without_tables, "Quantization table 0x00 was not defined"},
    {"bomb", make_bomb, "65500 x 65500 pixels are more than data.max_pixels"},
    {"larger_bomb", make_larger_bomb, "Maximum supported image dimension"},
    {"scans", make_scan_bomb, "more than 100 scans"},
    {"pipe", make_pipe, "not a regular file"},
    {"dangling", make_dangling, "cannot be opened: No such file or directory"},
    {"circle", make_circle, "cannot be opened: Too many levels of symbolic links"},
    {"directory", make_link_to_directory, "not a regular file"},
    {"huge", make_huge, "1099511627776 bytes are more than data.max_pixels make"},
};

static uint64_t peak_kib(void)
{
    char line[128];
    unsigned long kib = 0;
    FILE *stream = fopen("/proc/self/status", "r");
    while (stream && fgets(line, sizeof line, stream))
        sscanf(line, "VmHWM: %lu", &kib);
    if (stream)
        fclose(stream);
    return kib;
}

/* Image 3, the last of class a, is damaged: image 4 of class b takes its place, in every way of
 * reading; one warning names it; it is counted once. */
static void check_replaced(const struct damage *damage, const char *set, const char *preload,
                           const char *shard)
{
    struct source source;
    dpb_warnings_clear();
    if (open_set(set, &request, preload, shard, &source) != DPB_OK)
        fail_msg("%s: %s", damage->name, dpb_first_error(NULL));
    uint8_t samples[2][BYTES];
    int32_t labels[2];
    const uint64_t indices[2] = {3, 4};
    uint64_t before_kib = peak_kib();
    for (uint64_t epoch = 0; epoch < 3; epoch++) {
        if (source.ops->fetch(source.handle, DPB_TRAIN, epoch, indices, 2, samples, labels))
            fail_msg("%s: %s", damage->name, dpb_first_error(NULL));
        if (labels[0] != 1 || memcmp(samples[0], samples[1], BYTES) != 0)
            fail_msg("%s: was not replaced by the next", damage->name);
    }
    assert_true(peak_kib() - before_kib < 64 << 10);
    struct dpb_data_counts counts;
    source.ops->count(source.handle, &counts);
    assert_int_equal(counts.skipped, 1);
    const char *code, *text;
    assert_true(dpb_warning_at(0, &code, &text));
    assert_string_equal(code, "unreadable_image");
    const char *reason = preload && strstr(preload, "file") ? "" : damage->reason;
    if (!strstr(text, "train/a/3.jpg") || !strstr(text, reason))
        fail_msg("%s: '%s'", damage->name, text);
    assert_false(dpb_warning_at(1, &code, &text));
    source_close(&source);
}

TEST(test_unreadable_images_are_replaced)
{
    for (size_t i = 0; i < sizeof damages / sizeof *damages; i++) {
        char path[256], shard[256];
        make_set(damages[i].name);
        snprintf(path, sizeof path, "%s/train/a/3.jpg", damages[i].name);
        snprintf(shard, sizeof shard, "data.shard_file=%s.pack", damages[i].name);
        unlink(path);
        damages[i].make(path);
        size_t before = allocated_bytes;
        check_replaced(&damages[i], damages[i].name, NULL, NULL);
        check_replaced(&damages[i], damages[i].name, "data.preload=memory", NULL);
        check_replaced(&damages[i], damages[i].name, "data.preload=file", shard);
        check_replaced(&damages[i], damages[i].name, "data.decode=full", NULL);
        assert_int_equal(allocated_bytes, before);
        assert_true(largest_bytes < 16 << 20);
    }
}

/* Harmless oddities: bytes before a marker, bytes after the end, an unknown segment. */
TEST(test_odd_images_are_read)
{
    make_set("odd");
    struct blob blob = encode(60, 60, false);
    uint8_t *bytes = calloc(1, blob.n + 200);
    assert_non_null(bytes);
    size_t n = 0, at = find_marker(&blob, 0xda, 0);
    memcpy(bytes, blob.bytes, at);
    memcpy(bytes + at, "\xff\xe9\0\6\xff\xd9\xff\xff", 8); /* with an end of image in it */
    memcpy(bytes + at + 8, blob.bytes + at, blob.n - at);
    n = blob.n + 8 + 100; /* zeros behind */
    put_bytes("odd/train/a/3.jpg", bytes, n);
    free(bytes);
    free(blob.bytes);
    struct source source;
    assert_int_equal(open_set("odd", &request, "data.max_corrupt=0", NULL, &source), DPB_OK);
    uint8_t sample[BYTES];
    int32_t label;
    assert_int_equal(
        source.ops->fetch(source.handle, DPB_TRAIN, 0, (uint64_t[]){3}, 1, sample, &label), DPB_OK);
    assert_int_equal(label, 0);
    source_close(&source);
}

/* ---- how many ------------------------------------------------------------------------------ */

static void damage_image(const char *set, int i)
{
    char path[256];
    snprintf(path, sizeof path, "%s/train/%s/%d.jpg", set, i < 4 ? "a" : "b", i);
    make_png(path);
}

static dpb_status fetch_one(struct source *source, uint64_t index, uint8_t *sample, int32_t *label)
{
    return source->ops->fetch(source->handle, DPB_TRAIN, 0, &index, 1, sample, label);
}

TEST(test_too_many_end_the_run)
{
    uint8_t sample[BYTES];
    int32_t label;
    struct source source;
    make_set("many");
    damage_image("many", 2);
    assert_int_equal(open_set("many", &request, "data.max_corrupt=0", NULL, &source), DPB_OK);
    assert_int_equal(fetch_one(&source, 2, sample, &label), DPB_DATA);
    assert_says("none", "1 of the 8 images in train cannot be read, and data.max_corrupt = 0");
    assert_says("none", "train/a/2.jpg: not a JPEG file");
    source_close(&source);

    damage_image("many", 3);
    damage_image("many", 4);
    assert_int_equal(open_set("many", &request, "data.max_corrupt=0.25", NULL, &source), DPB_OK);
    assert_int_equal(fetch_one(&source, 4, sample, &label), DPB_OK);
    assert_int_equal(fetch_one(&source, 4, sample, &label), DPB_OK); /* not counted again */
    dpb_first_error_clear();
    assert_int_equal(fetch_one(&source, 2, sample, &label), DPB_DATA);
    assert_says("quarter", "3 of the 8 images in train");
    assert_says("quarter", "allows 2");
    assert_says("quarter", "train/b/4.jpg");
    source_close(&source);

    for (int i = 0; i < IMAGES; i++)
        damage_image("many", i);
    assert_int_equal(open_set("many", &request, "data.max_corrupt=1", NULL, &source), DPB_OK);
    dpb_first_error_clear();
    assert_int_equal(fetch_one(&source, 5, sample, &label), DPB_DATA);
    assert_says("all", "no image of train can be read");
    source_close(&source);
}

/* The next of the shard, and from its end to its beginning. */
TEST(test_a_shard_replaces_from_its_own)
{
    make_set("ring");
    damage_image("ring", 4);
    damage_image("ring", 7);
    struct dpb_data_request asked = request;
    asked.n_workers = 3;
    asked.sharded = true;
    asked.rank = 1;
    struct source source;
    assert_int_equal(open_set("ring", &asked, "data.max_corrupt=0.5", NULL, &source), DPB_OK);
    uint8_t replaced[BYTES], sample[BYTES];
    int32_t label;
    assert_int_equal(fetch_one(&source, 4, replaced, &label), DPB_OK); /* 4, 7, 1 */
    assert_int_equal(label, 0);
    assert_int_equal(fetch_one(&source, 1, sample, &label), DPB_OK);
    assert_memory_equal(replaced, sample, BYTES);
    source_close(&source);

    assert_int_equal(open_set("ring", &request, "data.max_corrupt=0.5", NULL, &source), DPB_OK);
    assert_int_equal(fetch_one(&source, 7, replaced, &label), DPB_OK); /* 7, 0 */
    assert_int_equal(fetch_one(&source, 0, sample, &label), DPB_OK);
    assert_memory_equal(replaced, sample, BYTES);
    source_close(&source);
}

TEST(test_a_file_that_vanishes)
{
    make_set("gone");
    struct source source;
    dpb_warnings_clear();
    assert_int_equal(open_set("gone", &request, NULL, NULL, &source), DPB_OK);
    assert_int_equal(unlink("gone/train/a/1.jpg"), 0);
    uint8_t replaced[BYTES], sample[BYTES];
    int32_t label;
    assert_int_equal(fetch_one(&source, 1, replaced, &label), DPB_OK);
    assert_int_equal(fetch_one(&source, 2, sample, &label), DPB_OK);
    assert_memory_equal(replaced, sample, BYTES);
    const char *code, *text;
    assert_true(dpb_warning_at(0, &code, &text));
    assert_non_null(strstr(text, "train/a/1.jpg: cannot be opened"));
    source_close(&source);
}

/* ---- directories --------------------------------------------------------------------------- */

static void in_set(const char *command)
{
    if (system(command) != 0)
        fail_msg("%s", command);
}

/* What is done to a good set D, and what is then said. */
static const struct tree {
    const char *name, *command, *message;
} trees[] = {
    {"no_path", "rm -r D", "D: data.path, the directory of the images, cannot be looked at"},
    {"a_file", "rm -r D; touch D", "D: data.path is not a directory"},
    {"no_train", "rm -r D/train", "D/train: this directory cannot be opened"},
    {"no_val", "rm -r D/val", "D/val: this directory cannot be opened"},
    {"no_class", "rm -r D/train/*; touch D/train/1.jpg",
     "no class directory in it (1 other files)"},
    {"not_in_val", "rm -r D/val/a", "class 'a' is in train but not in val"},
    {"not_in_train", "cp -r D/val/b D/val/c", "class 'c' is in val but not in train"},
    {"no_images", "rm D/train/b/*; touch D/train/b/4.png", "D/train/b: a class without images"},
    {"no_tests", "rm D/val/b/*", "D/val/b: a class without images"},
    {"deeper", "mkdir D/train/a/more", "D/train/a/more: a directory within a class"},
    {"circle_up", "ln -s . D/train/c; ln -s . D/val/c", "a directory within a class"},
    {"circle", "ln -s round D/train/round", "D/train/round: cannot be looked at: Too many levels"},
    {"latin", "mkdir \"D/val/$(printf 'caf\\351\\n.')\"",
     "class 'caf\\xe9\\x0a.' is in val but not"},
};

TEST(test_trees_are_refused)
{
    for (size_t i = 0; i < sizeof trees / sizeof *trees; i++) {
        struct source source;
        make_set("D");
        in_set(trees[i].command);
        size_t before = allocated_bytes;
        dpb_status status = open_set("D", &request, NULL, NULL, &source);
        if (status != DPB_DATA)
            fail_msg("%s: %s", trees[i].name, dpb_status_name(status));
        assert_says(trees[i].name, trees[i].message);
        source_close(&source);
        assert_int_equal(allocated_bytes, before);
        in_set("rm -rf D");
    }
}

TEST(test_an_unreadable_directory)
{
    make_set("secret");
    assert_int_equal(chmod(".", 0755), 0);
    assert_int_equal(chmod("secret/train/b", 0), 0);
    pid_t child = fork();
    if (child == 0) {
        struct source source;
        bool mortal = geteuid() != 0 || setuid(65534) == 0; /* to root nothing is forbidden */
        bool refused = mortal && open_set("secret", &request, NULL, NULL, &source) == DPB_DATA &&
                       strstr(dpb_first_error(NULL), "secret/train/b: this directory cannot");
        _exit(refused ? 0 : 1);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(chmod("secret/train/b", 0755), 0);
    assert_int_equal(status, 0);
}

TEST(test_options_that_cannot_be)
{
    static const struct {
        const char *first, *second, *message;
    } cases[] = {
        {"data.path=", NULL, "needs data.path"},
        {"data.train=", NULL, "data.train must not be empty"},
        {"data.area_min=0.5", "data.area_max=0.4", "data.area_min = 0.5 is more than"},
        {"data.aspect_min=2", NULL, "data.aspect_min = 2 is more than data.aspect_max"},
        {"data.preload=file", NULL, "needs data.shard_file"},
        {"data.preload=shard", NULL, "data.preload = shard needs data.shard_file"},
        {"data.preload=shard", "data.shard_file=x", "data.preload = shard needs data.shard = yes"},
        {"data.shard_file=x", NULL, "is used by data.preload = file and shard only"},
    };
    struct source source;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        assert_int_equal(open_set("ring", &request, cases[i].first, cases[i].second, &source),
                         DPB_USAGE);
        assert_says(cases[i].first, cases[i].message);
        source_close(&source);
    }
    struct dpb_data_request asked = request;
    asked.shape.w = 0;
    assert_int_equal(open_set("ring", &asked, NULL, NULL, &source), DPB_UNSUPPORTED);
    source_close(&source);
    char path[5000];
    memset(path, 'x', sizeof path);
    path[sizeof path - 1] = '\0';
    assert_int_equal(open_set(path, &request, NULL, NULL, &source), DPB_DATA);
    source_close(&source);
}

/* ---- packs --------------------------------------------------------------------------------- */

/* What is done after set D was packed into P, and what is then said. */
static const struct tree stale[] = {
    {"touched", "touch -d '2001-01-01' D/train/a/2.jpg", "train/a/2.jpg has been modified since"},
    {"resized", "printf x >>D/val/b/9.jpg", "val/b/9.jpg had another size"},
    {"renamed", "mv D/train/b/6.jpg D/train/b/61.jpg", "train/b/61.jpg was not at this place"},
    {"added", "cp D/train/b/6.jpg D/train/b/0.jpg", "8 images in 'train', which now has 9"},
    {"removed", "rm D/train/a/0.jpg", "8 images in 'train', which now has 7"},
    {"cut", "truncate -s -1 P", "its length is not the one in its header"},
    {"beheaded", "truncate -s 20 P", "this is no pack, or it was cut"},
    {"other", "head -c 100000 /dev/zero >P", "this is no pack of images"},
    {"index", "printf x | dd of=P bs=1 seek=100 conv=notrunc 2>/dev/null", "another checksum"},
    {"directory", "rm P; mkdir P", "P"},
};

TEST(test_stale_packs_are_refused)
{
    for (size_t i = 0; i < sizeof stale / sizeof *stale; i++) {
        struct source source;
        make_set("D");
        assert_int_equal(open_set("D", &request, "data.preload=file", "data.shard_file=P", &source),
                         DPB_OK);
        source_close(&source);
        in_set(stale[i].command);
        size_t before = allocated_bytes;
        dpb_status status =
            open_set("D", &request, "data.preload=file", "data.shard_file=P", &source);
        if (status != DPB_DATA && status != DPB_IO)
            fail_msg("%s: %s", stale[i].name, dpb_status_name(status));
        assert_says(stale[i].name, stale[i].message);
        source_close(&source);
        struct dpb_data_request check = request; /* says the same without a run */
        check.info_only = true;
        assert_int_equal(open_set("D", &check, "data.preload=file", "data.shard_file=P", &source),
                         status);
        source_close(&source);
        assert_int_equal(allocated_bytes, before);
        in_set("rm -rf D P");
    }
}

/* One of several processes makes the pack; what a dead one left does not hinder them. */
TEST(test_many_want_the_pack_at_once)
{
    enum { PROCESSES = 6 };
    make_set("D");
    struct dpb_data_request check = request;
    check.info_only = true;
    struct source source;
    assert_int_equal(open_set("D", &check, "data.preload=file", "data.shard_file=P", &source),
                     DPB_OK);
    source_close(&source);
    assert_int_equal(access("P", F_OK), -1);
    put_bytes("P.part", "left by somebody", 16);
    pid_t children[PROCESSES];
    for (int i = 0; i < PROCESSES; i++) {
        children[i] = fork();
        assert_true(children[i] >= 0);
        if (children[i] == 0) {
            uint8_t sample[BYTES];
            int32_t label;
            bool good = open_set("D", &request, "data.preload=file", "data.shard_file=P",
                                 &source) == DPB_OK &&
                        fetch_one(&source, 5, sample, &label) == DPB_OK && label == 1;
            _exit(good ? 0 : 1);
        }
    }
    for (int i = 0; i < PROCESSES; i++) {
        int status;
        assert_int_equal(waitpid(children[i], &status, 0), children[i]);
        assert_int_equal(status, 0);
    }
    assert_int_equal(access("P", F_OK), 0);
    assert_int_equal(access("P.part", F_OK), -1);

    assert_int_equal(open_set("D", &request, "data.preload=file", "data.shard_file=no/P", &source),
                     DPB_IO);
    assert_says("no directory", "no/P.part: cannot be made");
    source_close(&source);
}

int main(void)
{
    dpb_log_set_hooks(&(struct dpb_log_hooks){.silent = true});
    dpb_log_set_level(DPB_LOG_WARNING);
    return test_main(sandbox_setup, sandbox_teardown);
}
