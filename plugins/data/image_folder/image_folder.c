/*
 * image_folder - JPEG files in directories that are their classes, as ImageNet is kept:
 *
 *     PATH/train/CLASS/NAME.jpg    PATH/val/CLASS/NAME.jpg
 *
 * lib/images makes samples of the files.
 */
#include <stdio.h>

#include <jpeglib.h>

#include "lib/files/read_at.h"
#include "samples.h"

/* ---- options ------------------------------------------------------------------------------- */

struct options {
    const char *path, *train, *val, *shard_file;
    int preload;
    bool direct;
    struct image_options image;
};

static const char *const preloads[] = {"none", "memory", "file", "shard", NULL};

#define AT(member) offsetof(struct options, member)

static const struct dpb_option option_table[] = {
    {"path", DPB_OPT_STRING, "directory", NULL, 0, 0, NULL, AT(path),
     "Directory of the images; a split is a directory in it, and a class a directory in that.",
     NULL},
    {"train", DPB_OPT_STRING, NULL, "train", 0, 0, NULL, AT(train),
     "Directory of the training images in path.", NULL},
    {"val", DPB_OPT_STRING, NULL, "val", 0, 0, NULL, AT(val),
     "Directory of the test images in path, with the same classes; empty: there are none.", NULL},
    {"preload", DPB_OPT_CHOICE, NULL, "none", 0, 0, preloads, AT(preload),
     "Where files are read from: where they lie, memory that each rank fills at the start, one "
     "file that holds them all (shard_file), or for each rank a file of its own training images.",
     NULL},
    {"shard_file", DPB_OPT_STRING, "path", "", 0, 0, NULL, AT(shard_file),
     "The file that holds all images, made at the first use; for preload = shard, .RANK-of-WORKERS "
     "is added.",
     "data.preload = file, shard"},
    DIRECT_OPTION(struct options, direct),
    IMAGE_OPTIONS(struct options),
    {NULL, DPB_OPT_STRING, NULL, NULL, 0, 0, NULL, 0, NULL, NULL}};

/* ---- state --------------------------------------------------------------------------------- */

struct folder {
    struct listing listing;
    struct store store;
    struct images images;
};

static verdict read_file(void *context, dpb_split split, uint64_t sample, struct buffer *buffer,
                         const uint8_t **bytes, size_t *n, int32_t *label,
                         char reason[REASON_BYTES])
{
    struct folder *folder = context;
    *label = (int32_t)listing_label(&folder->listing, split, sample);
    return store_read(&folder->store, split, sample, buffer, bytes, n, reason);
}

static void name_of(const void *context, dpb_split split, uint64_t sample, char name[PATH_BYTES])
{
    const struct folder *folder = context;
    listing_name(&folder->listing, split, sample, name);
}

/* ---- hooks --------------------------------------------------------------------------------- */

static dpb_status folder_fetch(void *handle, dpb_split split, uint64_t epoch,
                               const uint64_t *indices, uint32_t n, void *samples, int32_t *labels)
{
    struct folder *folder = handle;
    return images_fetch(&folder->images, split, epoch, indices, n, samples, labels);
}

static void folder_count(void *handle, struct dpb_data_counts *counts)
{
    struct folder *folder = handle;
    counts->bytes_read = atomic_load(&folder->store.bytes_read);
    images_count(&folder->images, counts);
}

static void folder_close(void *handle)
{
    struct folder *folder = handle;
    if (!folder)
        return;
    images_close(&folder->images);
    store_close(&folder->store);
    listing_destroy(&folder->listing);
    image_host->release(folder, sizeof *folder);
}

static dpb_status check_options(const struct options *options,
                                const struct dpb_data_request *request)
{
    if (!options->path[0])
        return image_host->fail(DPB_USAGE, "data 'image_folder' needs data.path, the directory "
                                           "with train/CLASS/NAME.jpg and val/CLASS/NAME.jpg");
    if (!options->train[0])
        return image_host->fail(DPB_USAGE, "data.train must not be empty: it is the directory of "
                                           "the training images in data.path");
    const bool packs = options->preload == PRELOAD_FILE || options->preload == PRELOAD_SHARD;
    if (packs && !options->shard_file[0])
        return image_host->fail(DPB_USAGE,
                                "data.preload = %s needs data.shard_file, the file that shall hold "
                                "the images",
                                preloads[options->preload]);
    if (!packs && options->shard_file[0])
        return image_host->fail(DPB_USAGE, "data.shard_file is used by data.preload = file and "
                                           "shard only: leave it out, or set one of these");
    if (options->preload == PRELOAD_SHARD && !request->sharded)
        return image_host->fail(DPB_USAGE,
                                "data.preload = shard needs data.shard = yes: without it "
                                "every rank reads all images; take data.preload = file");
    return DPB_OK;
}

static dpb_status open_all(struct folder *folder, const struct options *options,
                           const struct dpb_data_request *request)
{
    const char *const directories[2] = {[DPB_TRAIN] = options->train, [DPB_TEST] = options->val};
    const struct listing *listing = &folder->listing;
    DPB_TRY(check_options(options, request));
    DPB_TRY(images_check("image_folder", &options->image, request));
    DPB_TRY(listing_create(options->path, directories, &folder->listing));
    const struct image_set set = {.path = options->path,
                                  .splits = {options->train, options->val},
                                  .n = {listing->splits[0].n, listing->splits[1].n},
                                  .n_classes = listing->n_classes,
                                  .context = folder,
                                  .read = read_file,
                                  .name_of = name_of};
    DPB_TRY(images_open(&options->image, request, &set, &folder->images));
    const struct store_args args = {.listing = &folder->listing,
                                    .preload = (preload)options->preload,
                                    .direct = options->direct,
                                    .shard_file = options->shard_file,
                                    .max_bytes = images_max_bytes(&options->image),
                                    .request = request};
    return store_open(&args, &folder->store);
}

static dpb_status folder_open(const void *options, const struct dpb_data_request *request,
                              void **handle, struct dpb_data_info *info)
{
    struct folder *folder = image_host->alloc(sizeof *folder);
    if (!folder)
        return DPB_NO_MEMORY;
    dpb_status status = open_all(folder, options, request);
    if (status != DPB_OK) {
        folder_close(folder);
        return status;
    }
    *handle = folder;
    *info = folder->images.info;
    return DPB_OK;
}

/* ---- entry --------------------------------------------------------------------------------- */

static const struct dpb_data_ops folder_ops = {
    .open = folder_open, .fetch = folder_fetch, .close = folder_close, .count = folder_count};

#define TEXT_OF(x) #x
#define VALUE_OF(x) TEXT_OF(x)

static const struct dpb_library libraries[] = {
    {"libjpeg-turbo", VALUE_OF(LIBJPEG_TURBO_VERSION), NULL}, {NULL, NULL, NULL}};

static const struct dpb_plugin folder_plugin = {
    DPB_PLUGIN_HEAD(DATA, folder_ops),
    .name = "image_folder",
    .version = "1",
    .summary = "JPEG files in directories that are their classes, as ImageNet; crops and flips",
    .options = option_table,
    .options_size = sizeof(struct options),
    .libraries = libraries};

const struct dpb_plugin *dpb_plugin_entry(const struct dpb_host *given)
{
    image_host = given;
    return &folder_plugin;
}
