/* needs: jpeg native */
/*
 * test_shards.c - the data plugins tfrecord and tar: the samples are those that image_folder makes
 * of the same files, by every way of writing them down; what is damaged is refused by name, or
 * counted.
 */
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include "data_source.h"
#include "jpeg_files.h"
#include "lib/masked_crc.h"
#include "lib/sandbox.h"
#include "lib/says.h"

enum { SIDE = 16, BYTES = SIDE * SIDE * 3, IMAGES = 6, CLASSES = 2, MOST = 1 << 16 };

static const struct dpb_data_request request = {
    .shape = {3, SIDE, SIDE}, .nclass = CLASSES, .seed = 7, .n_workers = 1};

/* ---- TFRecord files, written without the plugin's code --------------------------------------- */

struct blob {
    uint8_t bytes[MOST];
    size_t n;
};

static void add(struct blob *blob, const void *bytes, size_t n)
{
    assert_true(blob->n + n <= MOST);
    memcpy(blob->bytes + blob->n, bytes, n);
    blob->n += n;
}

static void add_varint(struct blob *blob, uint64_t value)
{
    for (; value >= 0x80; value >>= 7)
        add(blob, &(uint8_t){(uint8_t)(value | 0x80)}, 1);
    add(blob, &(uint8_t){(uint8_t)value}, 1);
}

static void add_field(struct blob *blob, uint32_t number, const void *bytes, size_t n)
{
    add_varint(blob, number << 3 | 2);
    add_varint(blob, n);
    add(blob, bytes, n);
}

static void add_record(struct blob *file, const struct blob *record)
{
    const uint64_t n = record->n;
    const uint32_t head = masked_crc((const uint8_t *)&n, sizeof n),
                   tail = masked_crc(record->bytes, record->n);
    add(file, &n, sizeof n);
    add(file, &head, sizeof head);
    add(file, record->bytes, record->n);
    add(file, &tail, sizeof tail);
}

enum form { PACKED, SINGLE, TURNED /* the label first, and fields that nobody knows */, FORMS };

/* One entry of the map; `bytes` NULL: a list of one number. */
static void add_feature(struct blob *features, const char *key, const void *bytes, size_t n,
                        int64_t number, enum form form)
{
    static struct blob list, feature, entry;
    list.n = feature.n = entry.n = 0;
    if (bytes) {
        add_field(&list, 1, bytes, n);
    } else if (form == SINGLE) {
        add_varint(&list, 1 << 3);
        add_varint(&list, (uint64_t)number);
    } else {
        struct blob *packed = own_memory(calloc(1, sizeof *packed), free);
        add_varint(packed, (uint64_t)number);
        add_field(&list, 1, packed->bytes, packed->n);
    }
    add_field(&feature, bytes ? 1 : 3, list.bytes, list.n);
    if (form == TURNED)
        add_field(&entry, 2, feature.bytes, feature.n);
    add_field(&entry, 1, key, strlen(key));
    if (form == TURNED) {
        add(&entry,
            "\x45"
            "1234",
            5); /* a fixed32 of field 8 */
        add(&entry,
            "\x49"
            "12345678",
            9); /* a fixed64 of field 9 */
    } else {
        add_field(&entry, 2, feature.bytes, feature.n);
    }
    add_field(features, 1, entry.bytes, entry.n);
}

static void add_example(struct blob *file, const char *key, const struct blob *image, int64_t label,
                        enum form form)
{
    static struct blob features, example;
    features.n = example.n = 0;
    add_feature(&features, "image/height", NULL, 0, 5, form);
    if (form == TURNED)
        add_feature(&features, "image/class/label", NULL, 0, label, form);
    add_feature(&features, key, image->bytes, image->n, 0, form);
    if (form != TURNED)
        add_feature(&features, "image/class/label", NULL, 0, label, form);
    add_field(&example, 1, features.bytes, features.n);
    add_record(file, &example);
}

/* ---- the set ------------------------------------------------------------------------------- */

static struct blob images[2][IMAGES]; /* by split */

static int label_of(int image)
{
    return image >= IMAGES / 2;
}

static void read_file(const char *path, struct blob *blob)
{
    FILE *stream = fopen(path, "rb");
    assert_non_null(stream);
    blob->n = fread(blob->bytes, 1, MOST, stream);
    fclose(stream);
}

/* folder/{train,val}/{0,1}/N.jpg, and members/{train,val}/N.{jpg,cls,json} */
static void make_set(void)
{
    static const char *const splits[] = {"train", "val"};
    assert_int_equal(system("mkdir -p folder/train/0 folder/train/1 folder/val/0 folder/val/1 "
                            "members/train members/val"),
                     0);
    for (int split = 0; split < 2; split++) {
        for (int i = 0; i < IMAGES; i++) {
            char path[64];
            snprintf(path, sizeof path, "folder/%s/%d/%d.jpg", splits[split], label_of(i), i);
            put_picture(path, picture_gradient(20 + 7 * (uint32_t)i, 40 - 3 * (uint32_t)split),
                        (struct jpeg_form){.progressive = i == 2});
            read_file(path, &images[split][i]);
            snprintf(path, sizeof path, "members/%s/%d.jpg", splits[split], i);
            put_bytes(path, images[split][i].bytes, images[split][i].n);
            snprintf(path, sizeof path, "members/%s/%d.cls", splits[split], i);
            sandbox_write(path, "%d%s", label_of(i), i == 1 ? "\n" : "");
            snprintf(path, sizeof path, "members/%s/%d.json", splits[split], i);
            sandbox_write(path, "{}");
        }
    }
}

static void put_records(enum form form)
{
    static const char *const names[2][2] = {{"records/train-0-of-2", "records/train-1-of-2"},
                                            {"records/validation-0-of-2", "records/val-1-of-2"}};
    static struct blob file;
    mkdir("records", 0777);
    for (int split = 0; split < 2; split++) {
        for (int shard = 0; shard < 2; shard++) {
            file.n = 0;
            /* val-1 comes before validation-0. */
            for (int i = 0; i < IMAGES; i++)
                if ((i >= 2) == (split == 0 ? shard == 1 : shard == 0))
                    add_example(&file, "image/encoded", &images[split][i], 1 + label_of(i), form);
            put_bytes(names[split][shard], file.bytes, file.n);
        }
    }
}

static bool has_tar(void)
{
    char path[600];
    snprintf(path, sizeof path, "%s/plugins/data_tar.so", getenv("DPB_BUILD"));
    return access(path, F_OK) == 0;
}

/* ---- the same samples ---------------------------------------------------------------------- */

static struct source open_good(const char *name, const char *path, const char *more)
{
    struct source source;
    char text[64];
    snprintf(text, sizeof text, "data.path=%s", path);
    const char *const assignments[] = {text, more, NULL};
    if (source_open(name, &request, assignments, &source) != DPB_OK)
        fail_msg("%s: %s", path, dpb_first_error(NULL));
    return source;
}

static void expect_same(const struct source *source, const char *title)
{
    struct source folder = open_good("image_folder", "folder", NULL);
    uint8_t a[BYTES], b[BYTES];
    int32_t label_a, label_b;
    assert_int_equal(source->info.nclass, CLASSES);
    assert_memory_equal(&source->info.format, &folder.info.format, sizeof folder.info.format);
    for (int split = 0; split < 2; split++) {
        assert_int_equal(source->info.n_samples[split], IMAGES);
        for (uint64_t i = 0; i < IMAGES; i++) {
            if (folder.ops->fetch(folder.handle, (dpb_split)split, 3, &i, 1, a, &label_a) != 0 ||
                source->ops->fetch(source->handle, (dpb_split)split, 3, &i, 1, b, &label_b) != 0)
                fail_msg("%s: %s", title, dpb_first_error(NULL));
            if (label_a != label_b || memcmp(a, b, BYTES) != 0)
                fail_msg("%s: split %d, sample %d is another one", title, split, (int)i);
        }
    }
    source_close(&folder);
}

static bool can_read_directly(const char *path)
{
    const int fd = open(path, O_RDONLY | O_DIRECT);
    if (fd >= 0)
        close(fd);
    return fd >= 0;
}

TEST(test_records)
{
    for (int form = 0; form < FORMS; form++) {
        put_records((enum form)form);
        const size_t before = allocated_bytes;
        struct source source = open_good("tfrecord", "records", NULL);
        struct dpb_data_counts counts;
        expect_same(&source, "records");
        source.ops->count(source.handle, &counts);
        assert_true(counts.bytes_read > 2 * IMAGES * 500 && counts.skipped == 0);
        source_close(&source);
        assert_int_equal(allocated_bytes, before);
    }
    if (!can_read_directly("records/train-0-of-2"))
        return;
    struct source source = open_good("tfrecord", "records", "data.direct=yes");
    expect_same(&source, "direct records");
    source_close(&source);
}

/* The names of members are longer than a header has room for. */
TEST(test_tar_files)
{
    static const char *const formats[] = {"ustar", "gnu", "pax", "v7"};
    if (!has_tar())
        skip();
    for (size_t i = 0; i < sizeof formats / sizeof *formats; i++) {
        char line[512];
        const bool is_long = i == 1 || i == 2;
        snprintf(line, sizeof line,
                 "mkdir -p tars && rm -f tars/* && for s in train val; do (cd members/$s && "
                 "tar --format=%s --sort=name -cf ../../tars/$s-0.tar --transform='%s' [01].* && "
                 "tar --format=%s --sort=name -cf ../../tars/$s-1.tar --transform='%s' [2-9].*); "
                 "done",
                 formats[i], is_long ? "s,^,a.b/$(printf %0200d 7)/," : "s,^,d.e/,", formats[i],
                 is_long ? "s,^,a.b/$(printf %0150d 7)_,;s,/,/,g" : "s,^,,");
        for (char *quote = line; is_long && (quote = strchr(quote, '\'')); quote++)
            *quote = '"';
        assert_int_equal(system(line), 0);
        const size_t before = allocated_bytes;
        struct source source = open_good("tar", "tars", NULL);
        expect_same(&source, formats[i]);
        source_close(&source);
        assert_int_equal(allocated_bytes, before);
    }
    if (!can_read_directly("tars/train-0.tar"))
        return;
    struct source source = open_good("tar", "tars", "data.direct=yes");
    expect_same(&source, "direct tar files");
    source_close(&source);
}

/* ---- what is refused ------------------------------------------------------------------------- */

static dpb_status open_any(const char *name, const char *more, const char *other,
                           struct source *source)
{
    const char *const assignments[] = {"data.path=bad", more, other, NULL};
    dpb_first_error_clear();
    return source_open(name, &request, assignments, source);
}

static void expect_refused(const char *name, const char *more, const char *other, dpb_status status,
                           const char *words)
{
    struct source source;
    const size_t before = allocated_bytes;
    const dpb_status found = open_any(name, more, other, &source);
    if (found != status)
        fail_msg("%s: %s: %s", words, dpb_status_name(found), dpb_first_error(NULL));
    expect_part(dpb_first_error(NULL), words);
    source_close(&source);
    assert_int_equal(allocated_bytes, before);
    dpb_first_error_clear();
}

TEST(test_names)
{
    assert_int_equal(system("mkdir -p bad && rm -rf bad/*"), 0);
    expect_refused("tfrecord", NULL, NULL, DPB_DATA, "no file has a name that fits data.train");
    put_bytes("bad/train-val", "", 0);
    expect_refused("tfrecord", NULL, NULL, DPB_USAGE, "bad/train-val: data.train = *train* and");
    expect_refused("tfrecord", "data.val=", NULL, DPB_DATA, "there is no sample in the files of");
    expect_refused("tfrecord", "data.train=", NULL, DPB_USAGE, "data.train must not be empty");
    expect_refused("tfrecord", "data.path=", NULL, DPB_USAGE, "needs data.path");
    expect_refused("tfrecord", "data.path=nowhere", NULL, DPB_DATA, "nowhere: data.path, the");
    assert_int_equal(system("rm bad/*; mkdir bad/train"), 0);
    expect_refused("tfrecord", NULL, NULL, DPB_DATA, "bad/train: is not a regular file");
    assert_int_equal(system("rmdir bad/train; cp records/train-0-of-2 bad"), 0);
    expect_refused("tfrecord", NULL, NULL, DPB_DATA, "without a test set leave data.val empty");
    struct source source;
    assert_int_equal(open_any("tfrecord", "data.val=", NULL, &source), DPB_OK);
    assert_int_equal(source.info.n_samples[DPB_TEST], 0);
    source_close(&source);
}

TEST(test_damaged_frames)
{
    static const struct {
        const char *change, *words;
    } rows[] = {
        {"truncate -s -1", "the record ends behind the file"},
        {"truncate -s 20", "byte 0: the record ends behind the file"},
        {"truncate -s 7", "byte 0: expected a record, found the end"},
        {"printf x | dd conv=notrunc status=none bs=1 seek=3 of=", "byte 0: the record's length"},
        {"printf x >>", "expected a record, found the end"},
        {"gzip -c records/train-0-of-2 >", "byte 0: the file is gzipped"},
        {"head -c 4000 /dev/zero >", "byte 0: the record's length has another checksum"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char line[256];
        const char *change = rows[i].change;
        const bool joins = strchr("=>", change[strlen(change) - 1]);
        snprintf(line, sizeof line,
                 "rm -rf bad; mkdir bad; cp records/train-0-of-2 bad/train; %s%sbad/train", change,
                 joins ? "" : " ");
        assert_int_equal(system(line), 0);
        expect_refused("tfrecord", "data.val=", NULL, DPB_DATA, rows[i].words);
    }
}

/* Samples of the file `bad/train`; the first of three is spoilt. */
static void expect_skipped(const struct blob *first, const char *reason)
{
    static struct blob file;
    struct source source;
    uint8_t sample[BYTES];
    int32_t label = -1;
    file.n = 0;
    add(&file, first->bytes, first->n);
    add_example(&file, "image/encoded", &images[0][4], 2, PACKED);
    add_example(&file, "image/encoded", &images[0][5], 2, PACKED);
    put_bytes("bad/train", file.bytes, file.n);
    assert_int_equal(open_any("tfrecord", "data.val=", NULL, &source), DPB_OK);
    assert_int_equal(source.info.n_samples[DPB_TRAIN], 3);
    assert_int_equal(
        source.ops->fetch(source.handle, DPB_TRAIN, 0, &(uint64_t){0}, 1, sample, &label), DPB_OK);
    assert_int_equal(label, 1);
    source_close(&source);
    assert_int_equal(open_any("tfrecord", "data.val=", "data.max_corrupt=0", &source), DPB_OK);
    assert_int_equal(
        source.ops->fetch(source.handle, DPB_TRAIN, 0, &(uint64_t){0}, 1, sample, &label),
        DPB_DATA);
    expect_part(dpb_first_error(NULL), "train, byte 12: ");
    expect_part(dpb_first_error(NULL), reason);
    source_close(&source);
    dpb_first_error_clear();
}

TEST(test_damaged_records)
{
    static struct blob file, record;
    const struct blob *image = &images[0][0];
    assert_int_equal(system("rm -rf bad; mkdir bad"), 0);
    add_example(&file, "image/encoded", image, 1, PACKED);
    file.bytes[file.n / 2] ^= 1;
    expect_skipped(&file, "the record has another checksum");
    file.n = 0;
    add_example(&file, "image", image, 1, PACKED);
    expect_skipped(&file, "there is no feature data.image_key in it");
    file.n = 0;
    add_example(&file, "image/encoded", &(struct blob){"no JPEG", 7}, 1, PACKED);
    expect_skipped(&file, "not a JPEG file");
    file.n = 0;
    add(&record, "\x0a\x7f", 2); /* a field that is longer than the record */
    add_record(&file, &record);
    expect_skipped(&file, "the record is no Example of protobuf");
    file.n = record.n = 0;
    add_record(&file, &record);
    expect_skipped(&file, "the record is no Example of protobuf");

    static const int64_t labels[] = {0, 3, -1, INT64_MAX, INT64_MIN};
    for (size_t i = 0; i < sizeof labels / sizeof *labels; i++) {
        struct source source;
        uint8_t sample[BYTES];
        int32_t label;
        file.n = 0;
        add_example(&file, "image/encoded", image, labels[i], i % 2 ? SINGLE : PACKED);
        put_bytes("bad/train", file.bytes, file.n);
        assert_int_equal(open_any("tfrecord", "data.val=", NULL, &source), DPB_OK);
        assert_int_equal(
            source.ops->fetch(source.handle, DPB_TRAIN, 0, &(uint64_t){0}, 1, sample, &label),
            DPB_IO);
        expect_part(dpb_first_error(NULL), "bad/train, byte 12: expected a label from 1 to 2");
        source_close(&source);
    }
}

TEST(test_keys)
{
    static struct blob file;
    struct source source;
    uint8_t sample[BYTES];
    int32_t label = -1;
    assert_int_equal(system("rm -rf bad; mkdir bad"), 0);
    add_example(&file, "picture", &images[0][0], 1, PACKED);
    put_bytes("bad/train", file.bytes, file.n);
    const char *const assignments[] = {"data.path=bad",
                                       "data.val=",
                                       "data.label_first=0",
                                       "data.image_key=picture",
                                       "data.label_key=image/class/label",
                                       NULL};
    assert_int_equal(source_open("tfrecord", &request, assignments, &source), DPB_OK);
    assert_int_equal(
        source.ops->fetch(source.handle, DPB_TRAIN, 0, &(uint64_t){0}, 1, sample, &label), DPB_OK);
    assert_int_equal(label, 1);
    source_close(&source);
}

/* `line` makes bad/train.tar in members/bad, which has 0.jpg, 0.cls and 1.jpg, 1.cls. */
TEST(test_bad_tar_files)
{
    static const struct {
        const char *line, *words;
    } rows[] = {
        {"rm 1.cls; tar -cf ../../bad/train.tar *", "bad/train.tar: 1: there is a picture without"},
        {"rm 0.jpg; tar -cf ../../bad/train.tar *", "bad/train.tar: 0: there is a class without a"},
        {"tar -cf ../../bad/train.tar *.jpg *.cls", "0: there is a picture without a class"},
        {"echo x >0.cls; tar -cf ../../bad/train.tar *", "0.cls: the class is no number"},
        {"echo -1 >0.cls; tar -cf ../../bad/train.tar *", "0.cls: the class is no number"},
        {"echo 99999999999999999999 >0.cls; tar -cf ../../bad/train.tar *",
         "0.cls: expected a class from 0 to 1, found"},
        {"echo 2 >1.cls; tar -cf ../../bad/train.tar *",
         "1.cls: expected a class from 0 to 1, found 2"},
        {"cp 0.jpg 0.JPEG; tar -cf ../../bad/train.tar *", "the sample has two pictures"},
        {"tar -cf ../../bad/train.tar 0.cls 0.cls 0.jpg --hard-dereference", "two classes"},
        {"truncate -s 100000 1.jpg; tar -Scf ../../bad/train.tar *", "the member is sparse"},
        {"tar -cf ../../bad/train.tar * && truncate -s 2100 ../../bad/train.tar",
         "ends behind the file"},
        {"tar -czf ../../bad/train.tar *", "cannot be read as a tar file"},
        {"head -c 5000 /dev/zero | tr '\\0' x >../../bad/train.tar", "cannot be read as a tar"},
        {"tar -cf ../../bad/train.tar -T /dev/null", "there is no sample in the files of"},
        {": >../../bad/train.tar", "bad/train"},
    };
    if (!has_tar())
        skip();
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char line[512];
        snprintf(line, sizeof line,
                 "rm -rf bad members/bad; mkdir -p bad members/bad; cd members/bad; "
                 "cp ../train/[01].jpg ../train/[01].cls .; %s",
                 rows[i].line);
        assert_int_equal(system(line), 0);
        expect_refused("tar", "data.val=", NULL, DPB_DATA, rows[i].words);
    }
}

static int set_up(void **state)
{
    const int code = sandbox_setup(state);
    dpb_log_set_hooks(&(struct dpb_log_hooks){.silent = true});
    dpb_log_set_level(DPB_LOG_WARNING);
    make_set();
    return code;
}

TEST_MAIN(set_up, sandbox_teardown)
