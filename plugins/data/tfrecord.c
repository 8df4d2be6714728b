/*
 * tfrecord - pictures in TFRecord files, as ImageNet is kept for TensorFlow and DALI. A file is
 * records, one behind the other, all numbers little-endian:
 *
 *     uint64 n; uint32 checksum of n; n bytes; uint32 checksum of these bytes
 *
 * A checksum is CRC-32C, turned right by 15 bits, plus 0xa282ead8. The bytes are a message of
 * protobuf, Example, whose map of features has the JPEG file and the label:
 *
 *     Example { Features features = 1 }     Features { map<string, Feature> feature = 1 }
 *     Feature { BytesList bytes_list = 1, Int64List int64_list = 3 }, each { repeated value = 1 }
 *
 * When the source is opened, the frames alone are read. lib/images makes samples of the pictures.
 *
 * tensorflow.org/tutorials/load_data/tfrecord; protobuf.dev/programming-guides/encoding
 */
#include <inttypes.h>
#include <stdio.h>

#include "lib/images/shards.h"

/* ---- options ------------------------------------------------------------------------------- */

struct options {
    struct shard_options shards;
    const char *image_key, *label_key;
    int64_t label_first;
    struct image_options image;
};

static const struct dpb_option option_table[] = {
    SHARD_OPTIONS(struct options),
    {"image_key", DPB_OPT_STRING, NULL, "image/encoded", 0, 0, NULL,
     offsetof(struct options, image_key), "The feature that is a JPEG file.", NULL},
    {"label_key", DPB_OPT_STRING, NULL, "image/class/label", 0, 0, NULL,
     offsetof(struct options, label_key), "The feature that is the number of the class.", NULL},
    {"label_first", DPB_OPT_INT, NULL, "1", 0, 1 << 20, NULL, offsetof(struct options, label_first),
     "The number of the first class; ImageNet's is 1.", NULL},
    IMAGE_OPTIONS(struct options),
    {NULL, DPB_OPT_STRING, NULL, NULL, 0, 0, NULL, 0, NULL, NULL}};

enum { HEAD_BYTES = 12, TAIL_BYTES = 4 };

/* ---- checksums ----------------------------------------------------------------------------- */

/* Castagnoli's polynomial, eight bytes at a time: Kounavis and Berry, A systematic approach to
 * building high performance software-based CRC generators. ISCC 2005. */
static uint32_t crc_tables[8][256];

static void make_crc_tables(void)
{
    for (uint32_t i = 0; i < 256; i++) {
        uint32_t crc = i;
        for (int bit = 0; bit < 8; bit++)
            crc = crc >> 1 ^ (crc & 1 ? UINT32_C(0x82f63b78) : 0);
        crc_tables[0][i] = crc;
    }
    for (uint32_t i = 0; i < 256; i++)
        for (int k = 1; k < 8; k++)
            crc_tables[k][i] =
                crc_tables[k - 1][i] >> 8 ^ crc_tables[0][crc_tables[k - 1][i] & 0xff];
}

static uint32_t word_at(const uint8_t *bytes)
{
    return (uint32_t)bytes[0] | (uint32_t)bytes[1] << 8 | (uint32_t)bytes[2] << 16 |
           (uint32_t)bytes[3] << 24;
}

static uint32_t masked_crc(const uint8_t *bytes, size_t n)
{
    uint32_t(*t)[256] = crc_tables;
    uint32_t crc = UINT32_MAX;
    for (; n >= 8; bytes += 8, n -= 8) {
        const uint32_t a = crc ^ word_at(bytes), b = word_at(bytes + 4);
        crc = t[7][a & 0xff] ^ t[6][a >> 8 & 0xff] ^ t[5][a >> 16 & 0xff] ^ t[4][a >> 24] ^
              t[3][b & 0xff] ^ t[2][b >> 8 & 0xff] ^ t[1][b >> 16 & 0xff] ^ t[0][b >> 24];
    }
    for (; n > 0; bytes++, n--)
        crc = crc >> 8 ^ crc_tables[0][(crc ^ *bytes) & 0xff];
    crc = ~crc;
    return (crc >> 15 | crc << 17) + UINT32_C(0xa282ead8);
}

/* ---- frames -------------------------------------------------------------------------------- */

static dpb_status index_records(struct shard_source *source, const struct shard *shard)
{
    for (uint64_t at = 0; at < shard->bytes;) {
        uint8_t head[HEAD_BYTES];
        size_t got;
        if (!read_at(shard->fd, head, sizeof head, at, &got))
            return shards_refuse(shard, at, strerror(errno));
        if (got < sizeof head)
            return shards_refuse(shard, at, "expected a record, found the end: the file is cut");
        if (masked_crc(head, 8) != word_at(head + 8))
            return shards_refuse(shard, at,
                                 head[0] == 0x1f && head[1] == 0x8b
                                     ? "the file is gzipped; unpack it"
                                     : "the record's length has another checksum: the file is "
                                       "damaged, or no TFRecord file");
        const uint64_t n = word_at(head) | (uint64_t)word_at(head + 4) << 32;
        const uint64_t left = shard->bytes - at - HEAD_BYTES;
        if (n > left || left - n < TAIL_BYTES)
            return shards_refuse(shard, at, "the record ends behind the file: the file is cut");
        DPB_TRY(shards_add(source, shard, at + HEAD_BYTES, n, 0));
        at += HEAD_BYTES + n + TAIL_BYTES;
    }
    return DPB_OK;
}

/* ---- messages ------------------------------------------------------------------------------ */

struct span {
    const uint8_t *at, *end;
};

static bool take_varint(struct span *from, uint64_t *value)
{
    *value = 0;
    for (int shift = 0; shift < 64 && from->at < from->end; shift += 7) {
        const uint8_t byte = *from->at++;
        *value |= (uint64_t)(byte & 0x7f) << shift;
        if (byte < 0x80)
            return true;
    }
    return false;
}

/* A field of a message: the bytes of one with a length, else the number of a varint. */
struct field {
    uint64_t number;
    bool has_length;
    struct span bytes;
    uint64_t varint;
};

/* False: the message is malformed. */
static bool take_field(struct span *message, struct field *field)
{
    uint64_t tag, n = 0;
    *field = (struct field){.number = 0};
    if (!take_varint(message, &tag))
        return false;
    field->number = tag >> 3;
    switch (tag & 7) {
    case 0:
        return take_varint(message, &field->varint);
    case 1:
        n = 8;
        break;
    case 2:
        field->has_length = true;
        if (!take_varint(message, &n))
            return false;
        break;
    case 5:
        n = 4;
        break;
    default:
        return false;
    }
    if (n > (uint64_t)(message->end - message->at))
        return false;
    field->bytes = (struct span){message->at, message->at + n};
    message->at += n;
    return true;
}

/* The last field with this number and a length; found->at is NULL if there is none. False: the
 * message is malformed. */
static bool find_bytes(struct span message, uint64_t number, struct span *found)
{
    struct field field;
    *found = (struct span){NULL, NULL};
    while (message.at < message.end) {
        if (!take_field(&message, &field))
            return false;
        if (field.number == number && field.has_length)
            *found = field.bytes;
    }
    return true;
}

/* The value of a key in the map of features. */
static bool find_feature(struct span features, const char *key, struct span *found)
{
    struct field entry;
    *found = (struct span){NULL, NULL};
    while (features.at < features.end) {
        struct span name, value;
        if (!take_field(&features, &entry))
            return false;
        if (entry.number != 1 || !entry.has_length)
            continue;
        if (!find_bytes(entry.bytes, 1, &name) || !find_bytes(entry.bytes, 2, &value))
            return false;
        if (name.at && value.at && (size_t)(name.end - name.at) == strlen(key) &&
            memcmp(name.at, key, strlen(key)) == 0)
            *found = value;
    }
    return true;
}

/* The first number of an Int64List, be it packed or not. */
static bool first_number(struct span list, int64_t *number)
{
    struct field field;
    uint64_t value;
    while (list.at < list.end && take_field(&list, &field)) {
        if (field.number != 1)
            continue;
        value = field.varint;
        if (field.has_length && !take_varint(&field.bytes, &value))
            return false;
        *number = (int64_t)value;
        return true;
    }
    return false;
}

/* NULL: both are there; else the defect. */
static const char *read_example(struct span example, const struct options *options,
                                struct span *image, int64_t *label)
{
    static const char malformed[] = "the record is no Example of protobuf";
    struct span features, feature, list;
    if (!find_bytes(example, 1, &features) || !features.at ||
        !find_feature(features, options->image_key, &feature))
        return malformed;
    if (!feature.at)
        return "there is no feature data.image_key in it";
    if (!find_bytes(feature, 1, &list) || !list.at || !find_bytes(list, 1, image) || !image->at)
        return "the feature data.image_key is no list of bytes";
    if (!find_feature(features, options->label_key, &feature))
        return malformed;
    if (!feature.at)
        return "there is no feature data.label_key in it";
    if (!find_bytes(feature, 3, &list) || !list.at || !first_number(list, label))
        return "the feature data.label_key is no list of numbers";
    return NULL;
}

/* ---- a sample ------------------------------------------------------------------------------ */

static verdict refuse_label(const struct shard_source *source, dpb_split split, uint64_t sample,
                            int64_t label)
{
    const struct options *options = source->options;
    char name[PATH_BYTES], text[PATH_BYTES];
    shards_name(source, split, sample, name);
    image_host->fail(DPB_DATA,
                     "%s/%s: expected a label from %" PRId64 " to %" PRId64 ", found %" PRId64
                     "; set model.nclass, or data.label_first, the number of the first class",
                     options->shards.path, printable(name, text), options->label_first,
                     options->label_first + source->images.set.n_classes - 1, label);
    return BROKEN;
}

static verdict read_record(struct shard_source *source, dpb_split split, uint64_t sample,
                           struct buffer *buffer, const uint8_t **bytes, size_t *n, int32_t *label,
                           char reason[REASON_BYTES])
{
    const struct options *options = source->options;
    const struct record *record = &source->records[split][sample];
    const verdict result = shards_read(source, record, TAIL_BYTES, buffer, reason);
    if (result != GOOD)
        return result;
    const uint8_t *end = buffer->bytes + record->bytes;
    struct span image;
    int64_t number = 0;
    const char *defect =
        masked_crc(buffer->bytes, (size_t)record->bytes) != word_at(end)
            ? "the record has another checksum: it is damaged"
            : read_example((struct span){buffer->bytes, end}, options, &image, &number);
    if (defect) {
        snprintf(reason, REASON_BYTES, "%s", defect);
        return BAD;
    }
    const uint64_t class = (uint64_t)number - (uint64_t)options->label_first;
    if (class >= source->images.set.n_classes)
        return refuse_label(source, split, sample, number);
    *label = (int32_t) class;
    *bytes = image.at;
    *n = (size_t)(image.end - image.at);
    return GOOD;
}

/* ---- hooks --------------------------------------------------------------------------------- */

static const struct shard_format format = {.name = "tfrecord",
                                           .options_size = sizeof(struct options),
                                           .shard_options = offsetof(struct options, shards),
                                           .image_options = offsetof(struct options, image),
                                           .index = index_records,
                                           .read = read_record};

static dpb_status tfrecord_open(const void *options, const struct dpb_data_request *request,
                                void **handle, struct dpb_data_info *info)
{
    return shards_open(&format, options, request, handle, info);
}

/* ---- entry --------------------------------------------------------------------------------- */

static const struct dpb_data_ops tfrecord_ops = {
    .open = tfrecord_open, .fetch = shards_fetch, .close = shards_close, .count = shards_count};

static const struct dpb_plugin tfrecord_plugin = {
    DPB_PLUGIN_HEAD(DATA, tfrecord_ops),
    .name = "tfrecord",
    .version = DPB_VERSION,
    .summary = "JPEG files and labels in TFRecord files, as ImageNet for TensorFlow",
    .options = option_table,
    .options_size = sizeof(struct options)};

const struct dpb_plugin *dpb_plugin_entry(const struct dpb_host *given)
{
    image_host = given;
    make_crc_tables();
    return &tfrecord_plugin;
}
