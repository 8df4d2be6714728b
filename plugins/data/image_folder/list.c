/*
 * list.c - lists the files. A listing is names in one piece of memory and one number for each, so a
 * million files cost their names and 8 bytes more each. The walk looks at no file itself: the
 * directory's entries are enough, but for symbolic links.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>

#include "samples.h"

/* ---- names --------------------------------------------------------------------------------- */

static bool is_jpeg_name(const char *name)
{
    const char *dot = strrchr(name, '.');
    return dot && (strcasecmp(dot, ".jpg") == 0 || strcasecmp(dot, ".jpeg") == 0);
}

/* ---- memory -------------------------------------------------------------------------------- */

static dpb_status add_text(struct listing *listing, const char *name, uint64_t *at)
{
    size_t bytes = strlen(name) + 1;
    void *text = listing->text;
    dpb_status status = grow_memory(&text, &listing->text_capacity, listing->text_bytes + bytes,
                                    sizeof *listing->text);
    listing->text = text;
    if (status != DPB_OK)
        return status;
    memcpy(listing->text + listing->text_bytes, name, bytes);
    *at = listing->text_bytes;
    listing->text_bytes += bytes;
    return DPB_OK;
}

static dpb_status add_name(struct listing *listing, uint64_t **names, uint64_t *capacity,
                           uint64_t *n, const char *name)
{
    void *memory = *names;
    dpb_status status = grow_memory(&memory, capacity, *n + 1, sizeof **names);
    *names = memory;
    if (status != DPB_OK)
        return status;
    DPB_TRY(add_text(listing, name, &(*names)[*n]));
    (*n)++;
    return DPB_OK;
}

static int compare_names(const void *a, const void *b, void *text)
{
    return strcmp((char *)text + *(const uint64_t *)a, (char *)text + *(const uint64_t *)b);
}

/* ---- a directory --------------------------------------------------------------------------- */

struct walk {
    DIR *stream;
    char path[PATH_BYTES];
    struct dirent *entry;
};

static dpb_status fail_at(const char *path, const char *what)
{
    char text[PATH_BYTES];
    int error = errno;
    return image_host->fail(DPB_DATA, "%s: %s: %s", printable(path, text), what, strerror(error));
}

static dpb_status walk_begin(struct walk *walk, const char *path)
{
    snprintf(walk->path, sizeof walk->path, "%s", path);
    walk->stream = opendir(path);
    return walk->stream ? DPB_OK : fail_at(path, "this directory cannot be opened");
}

/* Hidden entries are passed over. At the end `entry` is NULL. */
static dpb_status walk_next(struct walk *walk)
{
    do {
        errno = 0;
        walk->entry = readdir(walk->stream);
    } while (walk->entry && walk->entry->d_name[0] == '.');
    return walk->entry || errno == 0 ? DPB_OK
                                     : fail_at(walk->path, "this directory cannot be read");
}

/* DT_DIR, DT_REG or something else, links followed. */
static dpb_status walk_type(const struct walk *walk, bool follow, unsigned char *type)
{
    *type = walk->entry->d_type;
    if (*type != DT_UNKNOWN && (*type != DT_LNK || !follow))
        return DPB_OK;
    struct stat status;
    if (fstatat(dirfd(walk->stream), walk->entry->d_name, &status,
                follow ? 0 : AT_SYMLINK_NOFOLLOW) != 0) {
        int error = errno;
        char a[PATH_BYTES], b[PATH_BYTES];
        return image_host->fail(DPB_DATA, "%s/%s: cannot be looked at: %s",
                                printable(walk->path, a), printable(walk->entry->d_name, b),
                                strerror(error));
    }
    *type = IFTODT(status.st_mode);
    return DPB_OK;
}

/* ---- classes ------------------------------------------------------------------------------- */

struct classes {
    uint64_t *names;
    uint64_t n, capacity;
    uint64_t other; /* entries that are no directories */
};

static dpb_status walk_classes(struct listing *listing, struct walk *walk, struct classes *classes)
{
    for (;;) {
        DPB_TRY(walk_next(walk));
        if (!walk->entry)
            return DPB_OK;
        unsigned char type;
        DPB_TRY(walk_type(walk, true, &type));
        if (type == DT_DIR)
            DPB_TRY(add_name(listing, &classes->names, &classes->capacity, &classes->n,
                             walk->entry->d_name));
        else
            classes->other++;
    }
}

static dpb_status list_classes(struct listing *listing, dpb_split split, struct classes *classes)
{
    struct walk walk;
    char path[PATH_BYTES], text[PATH_BYTES];
    snprintf(path, sizeof path, "%s/%s", listing->path, listing->splits[split].directory);
    DPB_TRY(walk_begin(&walk, path));
    dpb_status status = walk_classes(listing, &walk, classes);
    closedir(walk.stream);
    if (status != DPB_OK)
        return status;
    if (classes->n == 0)
        return image_host->fail(DPB_DATA,
                                "%s: there is no class directory in it (%" PRIu64
                                " other files): images are expected as CLASS/NAME.jpg",
                                printable(path, text), classes->other);
    if (classes->n > INT32_MAX)
        return image_host->fail(DPB_DATA, "%s: more than %d classes", printable(path, text),
                                INT32_MAX);
    qsort_r(classes->names, (size_t)classes->n, sizeof *classes->names, compare_names,
            listing->text);
    return DPB_OK;
}

/* Refuses by name the first class that is in one split only. */
static dpb_status compare_classes(const struct listing *listing, const struct classes *train,
                                  const struct classes *test)
{
    for (uint64_t i = 0; i < train->n || i < test->n; i++) {
        const char *a = i < train->n ? listing->text + train->names[i] : NULL;
        const char *b = i < test->n ? listing->text + test->names[i] : NULL;
        int order = !a ? 1 : !b ? -1 : strcmp(a, b);
        if (order == 0)
            continue;
        dpb_split has = order < 0 ? DPB_TRAIN : DPB_TEST;
        char path[PATH_BYTES], text[PATH_BYTES];
        return image_host->fail(
            DPB_DATA, "%s: class '%s' is in %s but not in %s: both need the same classes",
            printable(listing->path, path), printable(has == DPB_TRAIN ? a : b, text),
            listing->splits[has].directory, listing->splits[1 - has].directory);
    }
    return DPB_OK;
}

/* ---- images -------------------------------------------------------------------------------- */

/* Files that are not taken: how many, and the first. */
struct ignored {
    uint64_t n;
    char first[PATH_BYTES];
};

/* Lists links by their names: their targets are seen when a link is read. */
static dpb_status walk_images(struct listing *listing, struct walk *walk, struct split_list *list,
                              struct ignored *ignored)
{
    for (;;) {
        DPB_TRY(walk_next(walk));
        if (!walk->entry)
            return DPB_OK;
        const char *name = walk->entry->d_name;
        unsigned char type;
        char a[PATH_BYTES], b[PATH_BYTES];
        DPB_TRY(walk_type(walk, false, &type));
        if (type == DT_DIR)
            return image_host->fail(DPB_DATA,
                                    "%s/%s: a directory within a class: images are expected as "
                                    "%s/CLASS/NAME.jpg, no deeper",
                                    printable(walk->path, a), printable(name, b), list->directory);
        if ((type == DT_REG || type == DT_LNK) && is_jpeg_name(name)) {
            if (strlen(walk->path) + strlen(name) + 2 > PATH_BYTES)
                return image_host->fail(DPB_DATA, "%s: paths of its files have more than %d bytes",
                                        printable(walk->path, a), PATH_BYTES - 1);
            DPB_TRY(add_name(listing, &list->names, &list->name_capacity, &list->n, name));
        } else if (ignored->n++ == 0) {
            snprintf(ignored->first, sizeof ignored->first, "%.2000s/%.255s", walk->path, name);
        }
    }
}

static dpb_status list_class(struct listing *listing, struct split_list *list, const char *name,
                             struct ignored *ignored)
{
    struct walk walk;
    char path[PATH_BYTES], text[PATH_BYTES];
    uint64_t first = list->n, before = ignored->n;
    if (snprintf(path, sizeof path, "%s/%s/%s", listing->path, list->directory, name) >= PATH_BYTES)
        return image_host->fail(DPB_DATA, "%s: paths of classes have more than %d bytes",
                                printable(listing->path, text), PATH_BYTES - 1);
    DPB_TRY(walk_begin(&walk, path));
    dpb_status status = walk_images(listing, &walk, list, ignored);
    closedir(walk.stream);
    if (status != DPB_OK)
        return status;
    if (list->n == first)
        return image_host->fail(DPB_DATA,
                                "%s: a class without images: none of its %" PRIu64
                                " files is named .jpg or .jpeg; "
                                "fill the directory or remove it",
                                printable(path, text), ignored->n - before);
    qsort_r(list->names + first, (size_t)(list->n - first), sizeof *list->names, compare_names,
            listing->text);
    return DPB_OK;
}

static dpb_status list_images(struct listing *listing, dpb_split split)
{
    struct split_list *list = &listing->splits[split];
    struct ignored ignored = {.n = 0};
    list->first = image_host->alloc((listing->n_classes + (size_t)1) * sizeof *list->first);
    if (!list->first)
        return DPB_NO_MEMORY;
    for (uint32_t c = 0; c < listing->n_classes; c++) {
        char name[NAME_MAX + 1]; /* the arena moves */
        snprintf(name, sizeof name, "%s", listing->text + listing->classes[c]);
        list->first[c] = list->n;
        DPB_TRY(list_class(listing, list, name, &ignored));
    }
    list->first[listing->n_classes] = list->n;
    char text[PATH_BYTES];
    if (ignored.n > 0)
        image_host->warn("ignored_files",
                         "%" PRIu64 " files beside the images are not named .jpg or .jpeg and were "
                         "left out, the first: %s",
                         ignored.n, printable(ignored.first, text));
    if (list->n > UINT32_MAX)
        return image_host->fail(DPB_UNSUPPORTED, "%s: more than 2^32 images",
                                printable(listing->path, text));
    return DPB_OK;
}

/* ---- all ----------------------------------------------------------------------------------- */

void listing_destroy(struct listing *listing)
{
    size_t classes = listing->n_classes;
    for (int split = 0; split < 2; split++) {
        struct split_list *list = &listing->splits[split];
        image_host->release(list->names, (size_t)list->name_capacity * sizeof *list->names);
        image_host->release(list->first, (classes + 1) * sizeof *list->first);
    }
    image_host->release(listing->classes, classes * sizeof *listing->classes);
    image_host->release(listing->text, (size_t)listing->text_capacity);
}

static dpb_status keep_classes(struct listing *listing, const struct classes *classes)
{
    size_t bytes = (size_t)classes->n * sizeof *listing->classes;
    listing->classes = image_host->alloc(bytes);
    if (!listing->classes)
        return DPB_NO_MEMORY;
    memcpy(listing->classes, classes->names, bytes);
    listing->n_classes = (uint32_t)classes->n;
    return DPB_OK;
}

static dpb_status list_all(struct listing *listing, struct classes classes[2])
{
    bool tests = listing->splits[DPB_TEST].directory[0] != '\0';
    DPB_TRY(list_classes(listing, DPB_TRAIN, &classes[DPB_TRAIN]));
    if (tests) {
        DPB_TRY(list_classes(listing, DPB_TEST, &classes[DPB_TEST]));
        DPB_TRY(compare_classes(listing, &classes[DPB_TRAIN], &classes[DPB_TEST]));
    }
    DPB_TRY(keep_classes(listing, &classes[DPB_TRAIN]));
    DPB_TRY(list_images(listing, DPB_TRAIN));
    return tests ? list_images(listing, DPB_TEST) : DPB_OK;
}

dpb_status listing_create(const char *path, const char *const directories[2],
                          struct listing *listing)
{
    struct classes classes[2] = {{.n = 0}, {.n = 0}};
    struct stat status;
    *listing = (struct listing){.path = path};
    for (int split = 0; split < 2; split++)
        listing->splits[split].directory = directories[split];
    if (stat(path, &status) != 0)
        return fail_at(path, "data.path, the directory of the images, cannot be looked at");
    if (!S_ISDIR(status.st_mode))
        return image_host->fail(DPB_DATA, "%s: data.path is not a directory", path);
    for (int split = 0; split < 2; split++) {
        if (strlen(path) + strlen(directories[split]) + 2 > PATH_BYTES)
            return image_host->fail(DPB_USAGE,
                                    "data.path, data.train and data.val are longer "
                                    "than %d bytes",
                                    PATH_BYTES - 1);
    }
    dpb_status result = list_all(listing, classes);
    for (int split = 0; split < 2; split++)
        image_host->release(classes[split].names,
                            (size_t)classes[split].capacity * sizeof *classes[split].names);
    if (result != DPB_OK) {
        listing_destroy(listing);
        *listing = (struct listing){.path = path};
    }
    return result;
}

uint32_t listing_label(const struct listing *listing, dpb_split split, uint64_t sample)
{
    const uint64_t *first = listing->splits[split].first;
    uint32_t low = 0, high = listing->n_classes; /* first[low] <= sample < first[high] */
    while (high - low > 1) {
        uint32_t middle = low + (high - low) / 2;
        if (first[middle] <= sample)
            low = middle;
        else
            high = middle;
    }
    return low;
}

void listing_name(const struct listing *listing, dpb_split split, uint64_t sample,
                  char name[PATH_BYTES])
{
    const struct split_list *list = &listing->splits[split];
    snprintf(name, PATH_BYTES, "%s/%s/%s", list->directory,
             listing->text + listing->classes[listing_label(listing, split, sample)],
             listing->text + list->names[sample]);
}

void listing_path(const struct listing *listing, dpb_split split, uint64_t sample,
                  char path[PATH_BYTES])
{
    char name[PATH_BYTES];
    listing_name(listing, split, sample, name);
    int length = snprintf(path, PATH_BYTES, "%s/", listing->path);
    snprintf(path + length, (size_t)(PATH_BYTES - length), "%s", name);
}
