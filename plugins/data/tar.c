/*
 * tar - pictures in tar files, as WebDataset keeps them: members of one sample follow each other
 * and have one name up to the first dot, KEY.jpg the picture, KEY.cls its class, a number from 0 on
 * in text. Other members of a sample are left out.
 *
 * When the source is opened, libarchive reads the headers of all members, and the classes. A
 * picture is contiguous bytes of the tar file, so a sample is one read later. lib/images makes
 * samples of the pictures.
 *
 * Aizman, Maltby, Breuel: High performance I/O for large scale deep learning. IEEE Big Data 2019.
 * github.com/webdataset/webdataset: the names.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <strings.h>

#include <archive.h>
#include <archive_entry.h>

#include "lib/images/shards.h"

/* ---- options ------------------------------------------------------------------------------- */

struct options {
    struct shard_options shards;
    struct image_options image;
};

static const struct dpb_option option_table[] = {
    SHARD_OPTIONS(struct options),
    IMAGE_OPTIONS(struct options),
    {NULL, DPB_OPT_STRING, NULL, NULL, 0, 0, NULL, 0, NULL, NULL}};

/* ---- members ------------------------------------------------------------------------------- */

/* What has been seen of a sample. */
struct group {
    char key[PATH_BYTES]; /* empty: of none */
    bool has_image, has_label;
    uint64_t offset, bytes;
    int32_t label;
};

struct reading {
    struct shard_source *source;
    const struct shard *shard;
    struct archive *archive;
    struct group group;
};

static dpb_status refuse(const struct reading *reading, const char *name, const char *what)
{
    char path[PATH_BYTES], text[PATH_BYTES];
    return image_host->fail(DPB_DATA, "%s: %.1000s: %s", printable(reading->shard->path, path),
                            printable(name, text), what);
}

/* The sample whose members have been read. */
static dpb_status end_group(struct reading *reading)
{
    const struct group *group = &reading->group;
    if (group->has_image != group->has_label)
        return refuse(reading, group->key,
                      group->has_image ? "there is a picture without a class, KEY.cls, beside it"
                                       : "there is a class without a picture, KEY.jpg, beside it");
    return group->has_image ? shards_add(reading->source, reading->shard, group->offset,
                                         group->bytes, group->label)
                            : DPB_OK;
}

/* The name up to the first dot behind the last slash; *ending is what follows the dot. */
static size_t key_length(const char *name, const char **ending)
{
    const char *slash = strrchr(name, '/'), *dot = strchr(slash ? slash : name, '.');
    *ending = dot ? dot + 1 : "";
    return dot ? (size_t)(dot - name) : strlen(name);
}

static dpb_status begin_member(struct reading *reading, const char *name, const char **ending)
{
    const size_t length = key_length(name, ending);
    if (length >= PATH_BYTES)
        return refuse(reading, name, "the name of a member is too long");
    if (strlen(reading->group.key) == length && memcmp(reading->group.key, name, length) == 0)
        return DPB_OK;
    DPB_TRY(end_group(reading));
    reading->group = (struct group){.key = ""};
    memcpy(reading->group.key, name, length);
    return DPB_OK;
}

static dpb_status take_image(struct reading *reading, struct archive_entry *entry, const char *name)
{
    struct group *group = &reading->group;
    /* The header has been consumed, and nothing of the member. */
    const int64_t offset = archive_filter_bytes(reading->archive, 0);
    const int64_t bytes = archive_entry_size(entry);
    if (group->has_image)
        return refuse(reading, name, "the sample has two pictures");
    if (archive_entry_sparse_count(entry) > 0)
        return refuse(reading, name, "the member is sparse; make the tar file without holes");
    if (offset < 0 || bytes < 0 || (uint64_t)offset > reading->shard->bytes ||
        (uint64_t)bytes > reading->shard->bytes - (uint64_t)offset)
        return refuse(reading, name, "the member ends behind the file: the file is cut");
    group->has_image = true;
    group->offset = (uint64_t)offset;
    group->bytes = (uint64_t)bytes;
    return DPB_OK;
}

static dpb_status take_label(struct reading *reading, const char *name)
{
    struct group *group = &reading->group;
    const uint32_t n_classes = reading->source->images.set.n_classes;
    char text[24], what[128], *end = text;
    const la_ssize_t n = archive_read_data(reading->archive, text, sizeof text - 1);
    if (n < 0)
        return refuse(reading, name, archive_error_string(reading->archive));
    text[n] = '\0';
    const unsigned long class = strtoul(text, &end, 10);
    end += strspn(end, " \r\n");
    if (text[0] < '0' || text[0] > '9' || end != text + n)
        return refuse(reading, name, "the class is no number");
    if (group->has_label)
        return refuse(reading, name, "the sample has two classes");
    if (class >= n_classes) {
        snprintf(what, sizeof what,
                 "expected a class from 0 to %" PRIu32 ", found %lu; set model.nclass",
                 n_classes - 1, class);
        return refuse(reading, name, what);
    }
    group->has_label = true;
    group->label = (int32_t) class;
    return DPB_OK;
}

static dpb_status take_member(struct reading *reading, struct archive_entry *entry)
{
    const char *name = archive_entry_pathname(entry), *ending;
    if (!name)
        name = archive_entry_pathname_utf8(entry);
    if (!name)
        return refuse(reading, "?", "a member has a name that cannot be read");
    if (archive_entry_filetype(entry) != AE_IFREG || archive_entry_hardlink(entry))
        return DPB_OK;
    DPB_TRY(begin_member(reading, name, &ending));
    if (strcasecmp(ending, "jpg") == 0 || strcasecmp(ending, "jpeg") == 0)
        return take_image(reading, entry, name);
    return strcasecmp(ending, "cls") == 0 ? take_label(reading, name) : DPB_OK;
}

/* ---- a shard ------------------------------------------------------------------------------- */

static dpb_status refuse_archive(const struct reading *reading)
{
    const char *why = archive_error_string(reading->archive);
    char path[PATH_BYTES];
    return image_host->fail(DPB_DATA,
                            "%s: cannot be read as a tar file: %s (a compressed one must "
                            "be unpacked)",
                            printable(reading->shard->path, path), why ? why : "it is damaged");
}

static dpb_status read_members(struct reading *reading)
{
    struct archive_entry *entry;
    int result;
    while ((result = archive_read_next_header(reading->archive, &entry)) == ARCHIVE_OK ||
           result == ARCHIVE_WARN) /* of names, or attributes */
        DPB_TRY(take_member(reading, entry));
    return result == ARCHIVE_EOF ? end_group(reading) : refuse_archive(reading);
}

static dpb_status index_members(struct shard_source *source, const struct shard *shard)
{
    enum { BLOCK = 4096 }; /* a class and the next header */
    struct reading *reading = image_host->alloc(sizeof *reading);
    if (!reading)
        return DPB_NO_MEMORY;
    *reading = (struct reading){.source = source, .shard = shard, .archive = archive_read_new()};
    dpb_status status = DPB_OK;
    if (!reading->archive)
        status = image_host->fail(DPB_NO_MEMORY, "libarchive: no memory");
    else if (archive_read_support_format_tar(reading->archive) < ARCHIVE_WARN ||
             archive_read_open_fd(reading->archive, shard->fd, BLOCK) != ARCHIVE_OK)
        status = refuse_archive(reading);
    DPB_THEN(status, read_members(reading));
    archive_read_free(reading->archive);
    image_host->release(reading, sizeof *reading);
    return status;
}

static verdict read_member(struct shard_source *source, dpb_split split, uint64_t sample,
                           struct buffer *buffer, const uint8_t **bytes, size_t *n, int32_t *label,
                           char reason[REASON_BYTES])
{
    const struct record *record = &source->records[split][sample];
    const verdict result = shards_read(source, record, 0, buffer, reason);
    *label = record->label;
    *bytes = buffer->bytes;
    *n = (size_t)record->bytes;
    return result;
}

/* ---- hooks --------------------------------------------------------------------------------- */

static const struct shard_format format = {.name = "tar",
                                           .options_size = sizeof(struct options),
                                           .shard_options = offsetof(struct options, shards),
                                           .image_options = offsetof(struct options, image),
                                           .index = index_members,
                                           .read = read_member};

static dpb_status tar_open(const void *options, const struct dpb_data_request *request,
                           void **handle, struct dpb_data_info *info)
{
    return shards_open(&format, options, request, handle, info);
}

/* ---- entry --------------------------------------------------------------------------------- */

static const struct dpb_data_ops tar_ops = {
    .open = tar_open, .fetch = shards_fetch, .close = shards_close, .count = shards_count};

static struct dpb_library libraries[] = {{"libarchive", ARCHIVE_VERSION_ONLY_STRING, NULL},
                                         {NULL, NULL, NULL}};

static const struct dpb_plugin tar_plugin = {
    DPB_PLUGIN_HEAD(DATA, tar_ops),
    .name = "tar",
    .version = DPB_VERSION,
    .summary = "JPEG files and classes in tar files, as WebDataset keeps them",
    .options = option_table,
    .options_size = sizeof(struct options),
    .libraries = libraries};

const struct dpb_plugin *dpb_plugin_entry(const struct dpb_host *given)
{
    image_host = given;
    libraries[0].loaded = archive_version_string() + strlen("libarchive ");
    return &tar_plugin;
}
