/*
 * pack.c - all files of a listing in one, so that a sample is one read instead of a search through
 * directories, an open and a close. Nothing in a pack of all depends on the number of workers: each
 * rank reads its part. A shard is a pack of the training samples of one worker. A pack is made
 * once, by the first process that finds none: into NAME.part, under a lock, renamed when it is
 * whole; others wait for it. Where the file system has no locks, the process that has made
 * NAME.part owns it.
 *
 *     struct header; struct entry for each training, then each test sample (of a shard: for each
 *     training sample of the worker); the files' bytes
 *
 * in the machine's byte order. An entry holds name, size and time of its file as they were: a pack
 * of another state of the files is refused, naming the first that differs.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "lib/files/read_at.h"
#include "samples.h"

enum { PATIENCE_S = 120 }; /* NFS shows another machine's writes after a minute */

#define MAGIC UINT64_C(0x314b434150425044) /* "DPBPACK1" in little endian */

struct header {
    uint64_t magic;
    uint64_t n_samples[2];    /* by dpb_split */
    uint64_t file_bytes;      /* of the whole pack */
    uint64_t checksum;        /* of the entries */
    uint64_t max_bytes;       /* larger files were left out */
    uint64_t rank, n_workers; /* of a shard; else 0 */
};

struct entry {
    uint64_t name;            /* hash of SPLIT/CLASS/FILE */
    uint64_t bytes, modified; /* of the file, ns; UINT64_MAX: it could not be looked at */
    uint64_t offset, stored;  /* in the pack; PLACE_UNREADABLE: nothing is stored */
};

struct pack {
    const char *path;
    const struct listing *listing;
    struct entry *entries; /* of its samples */
    uint64_t n;
    uint32_t rank, n_workers; /* of a shard; else 0 */
    struct header header;
};

/* ---- the files as they are now ------------------------------------------------------------- */

/* Fowler, Noll, Vo: FNV-1a. */
static uint64_t hash(const void *bytes, size_t n)
{
    uint64_t h = UINT64_C(0xcbf29ce484222325);
    for (size_t i = 0; i < n; i++)
        h = (h ^ ((const uint8_t *)bytes)[i]) * UINT64_C(0x100000001b3);
    return h;
}

static dpb_split split_of(const struct pack *pack, uint64_t i, uint64_t *sample)
{
    uint64_t n_train = pack->listing->splits[DPB_TRAIN].n;
    if (pack->n_workers > 0) {
        *sample = pack->rank + i * pack->n_workers;
        return DPB_TRAIN;
    }
    *sample = i < n_train ? i : i - n_train;
    return i < n_train ? DPB_TRAIN : DPB_TEST;
}

static struct entry look_at(const struct pack *pack, uint64_t i)
{
    char text[PATH_BYTES];
    uint64_t sample;
    struct stat status;
    dpb_split split = split_of(pack, i, &sample);
    listing_name(pack->listing, split, sample, text);
    struct entry entry = {.name = hash(text, strlen(text)),
                          .bytes = UINT64_MAX,
                          .modified = UINT64_MAX,
                          .offset = PLACE_UNREADABLE};
    listing_path(pack->listing, split, sample, text);
    if (stat(text, &status) == 0) {
        entry.bytes = (uint64_t)status.st_size;
        entry.modified =
            (uint64_t)status.st_mtim.tv_sec * 1000000000 + (uint64_t)status.st_mtim.tv_nsec;
    }
    return entry;
}

static size_t entries_bytes(const struct pack *pack)
{
    return (size_t)pack->n * sizeof *pack->entries;
}

/* ---- making one ---------------------------------------------------------------------------- */

static dpb_status write_all(const struct pack *pack, int fd, const void *bytes, size_t n,
                            uint64_t at)
{
    for (size_t done = 0; done < n;) {
        ssize_t wrote = pwrite(fd, (const uint8_t *)bytes + done, n - done, (off_t)(at + done));
        if (wrote < 0 && errno == EINTR)
            continue;
        if (wrote <= 0)
            return image_host->fail(DPB_IO, "%s.part: cannot be written: %s", pack->path,
                                    wrote < 0 ? strerror(errno) : "no room");
        done += (size_t)wrote;
    }
    return DPB_OK;
}

static dpb_status pack_file(struct pack *pack, uint64_t i, int fd, uint64_t max_bytes,
                            struct buffer *buffer)
{
    char path[PATH_BYTES], text[PATH_BYTES], reason[REASON_BYTES];
    struct entry *entry = &pack->entries[i];
    uint64_t sample;
    size_t n = 0;
    dpb_split split = split_of(pack, i, &sample);
    *entry = look_at(pack, i);
    listing_path(pack->listing, split, sample, path);
    verdict result = read_image_file(path, false, max_bytes, buffer, &n, reason);
    if (result == BROKEN)
        return DPB_IO;
    if (result == BAD)
        return DPB_OK; /* in the pack as unreadable */
    if (n != entry->bytes)
        return image_host->fail(DPB_DATA, "%s: changed while it was packed into %s: run again",
                                printable(path, text), pack->path);
    entry->offset = pack->header.file_bytes;
    entry->stored = n;
    pack->header.file_bytes += n;
    return write_all(pack, fd, buffer->bytes, n, entry->offset);
}

static dpb_status write_pack(struct pack *pack, int fd, uint64_t max_bytes)
{
    struct buffer buffer = {.bytes = NULL};
    dpb_status status = DPB_OK;
    pack->header = (struct header){.magic = MAGIC,
                                   .max_bytes = max_bytes,
                                   .rank = pack->rank,
                                   .n_workers = pack->n_workers,
                                   .file_bytes = sizeof pack->header + entries_bytes(pack)};
    for (int split = 0; split < 2; split++)
        pack->header.n_samples[split] = pack->listing->splits[split].n;
    for (uint64_t i = 0; i < pack->n && status == DPB_OK; i++)
        status = pack_file(pack, i, fd, max_bytes, &buffer);
    buffer_release(&buffer);
    if (status != DPB_OK)
        return status;
    pack->header.checksum = hash(pack->entries, entries_bytes(pack));
    DPB_TRY(write_all(pack, fd, pack->entries, entries_bytes(pack), sizeof pack->header));
    DPB_TRY(write_all(pack, fd, &pack->header, sizeof pack->header, 0));
    if (fsync(fd) == 0)
        return DPB_OK;
    return image_host->fail(DPB_IO, "%s.part: cannot be written: %s", pack->path, strerror(errno));
}

/* `fd` is NAME.part, made by this process and locked. */
static dpb_status make_pack(struct pack *pack, const char *part, int fd, uint64_t max_bytes)
{
    image_host->log(DPB_LOG_INFO, "data.shard_file: packing %" PRIu64 " images into %s", pack->n,
                    pack->path);
    dpb_status status = write_pack(pack, fd, max_bytes);
    if (status == DPB_OK && rename(part, pack->path) != 0)
        status = image_host->fail(DPB_IO, "%s: cannot be renamed to %s: %s", part, pack->path,
                                  strerror(errno));
    if (status != DPB_OK)
        unlink(part);
    return status;
}

/* Whether `path` still names the file `fd`: another process may have renamed it before we got the
 * lock. */
static bool is_current(int fd, const char *path)
{
    struct stat ours, theirs;
    return fstat(fd, &ours) == 0 && lstat(path, &theirs) == 0 && ours.st_dev == theirs.st_dev &&
           ours.st_ino == theirs.st_ino;
}

/* Opens an existing file to wait for its lock, never to write to it: somebody else may have put it
 * there, or made it a link. NFS locks only files that are open for writing. The maker may remove
 * the file at any moment. */
static int open_part(const char *part, bool *made)
{
    int fd;
    do {
        fd = open(part, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0666);
        *made = fd >= 0;
        if (fd >= 0 || errno != EEXIST)
            return fd;
        fd = open(part, O_RDWR | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
        if (fd < 0 && errno == EACCES)
            fd = open(part, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    } while (fd < 0 && errno == ENOENT);
    struct stat info;
    if (fd >= 0 && (fstat(fd, &info) != 0 || !S_ISREG(info.st_mode))) {
        close(fd);
        errno = EEXIST;
        return -1;
    }
    return fd;
}

static bool has_locks(int error)
{
    return error != ENOSYS && error != ENOLCK && error != EOPNOTSUPP;
}

/* Until the maker has renamed or removed NAME.part. Without locks, only the file's age tells
 * whether its maker still writes. */
static dpb_status await_maker(const char *part, int fd)
{
    const struct timespec pause = {.tv_nsec = 100000000};
    struct stat info;
    for (; is_current(fd, part); nanosleep(&pause, NULL))
        if (fstat(fd, &info) == 0 && time(NULL) - info.st_mtime > PATIENCE_S)
            return image_host->fail(
                DPB_IO,
                "%s: the process that writes it has written nothing for %d s, and this file system "
                "has no locks to tell whether that process lives: if no other run packs these "
                "images, remove the file and run again",
                part, PATIENCE_S);
    return DPB_OK;
}

/* Returns when there is a pack, made by this process or by another, or when the caller is to look
 * for one again. */
static dpb_status provide_pack(struct pack *pack, uint64_t max_bytes)
{
    char part[PATH_BYTES];
    bool made;
    if (snprintf(part, sizeof part, "%s.part", pack->path) >= PATH_BYTES)
        return image_host->fail(DPB_USAGE, "data.shard_file is longer than %d bytes",
                                PATH_BYTES - 6);
    int fd = open_part(part, &made), locked;
    if (fd < 0)
        return image_host->fail(DPB_IO, "%s: cannot be made: %s", part,
                                errno == ELOOP ? "there is a link" : strerror(errno));
    do {
        locked = flock(fd, LOCK_EX); /* gone when its holder is gone */
    } while (locked != 0 && errno == EINTR);
    dpb_status status = DPB_OK;
    if (locked != 0 && !has_locks(errno))
        status = made ? make_pack(pack, part, fd, max_bytes) : await_maker(part, fd);
    else if (locked != 0)
        status = image_host->fail(DPB_IO, "%s: cannot be locked: %s", part, strerror(errno));
    else if (is_current(fd, part) && (!made || access(pack->path, F_OK) == 0))
        unlink(part); /* left by a process that has died; or the pack was made before us */
    else if (is_current(fd, part))
        status = make_pack(pack, part, fd, max_bytes);
    close(fd);
    return status;
}

/* ---- reading one --------------------------------------------------------------------------- */

static dpb_status refuse(const struct pack *pack, const char *what)
{
    return image_host->fail(DPB_DATA, "%s: %s; remove the file, and the next run makes it anew",
                            pack->path, what);
}

static dpb_status read_part(const struct pack *pack, int fd, void *to, size_t n, uint64_t at)
{
    size_t got;
    if (!read_at(fd, to, n, at, &got))
        return image_host->fail(DPB_IO, "%s: cannot be read: %s", pack->path, strerror(errno));
    return got == n ? DPB_OK : refuse(pack, "this is no pack, or it was cut");
}

static dpb_status read_index(struct pack *pack, uint64_t max_bytes, int fd)
{
    struct stat status;
    const struct header *header = &pack->header;
    DPB_TRY(read_part(pack, fd, &pack->header, sizeof pack->header, 0));
    if (fstat(fd, &status) != 0 || header->magic != MAGIC)
        return refuse(pack, "this is no pack of images of this version and byte order");
    if ((uint64_t)status.st_size != header->file_bytes)
        return refuse(pack, "the pack is damaged: its length is not the one in its header");
    if (header->max_bytes < max_bytes)
        return refuse(pack, "it was packed with a smaller data.max_pixels");
    if (header->rank != pack->rank || header->n_workers != pack->n_workers)
        return refuse(pack, "it has the images of another worker, or of another number of workers");
    for (int split = 0; split < 2; split++) {
        const struct split_list *list = &pack->listing->splits[split];
        char text[200];
        snprintf(text, sizeof text,
                 "it was packed from another state of the files: %" PRIu64
                 " images in '%.80s', which now has %" PRIu64,
                 header->n_samples[split], list->directory, list->n);
        if (header->n_samples[split] != list->n)
            return refuse(pack, text);
    }
    DPB_TRY(read_part(pack, fd, pack->entries, entries_bytes(pack), sizeof pack->header));
    if (hash(pack->entries, entries_bytes(pack)) != header->checksum)
        return refuse(pack, "the pack is damaged: its index has another checksum");
    return DPB_OK;
}

static dpb_status refuse_stale(const struct pack *pack, uint64_t i, const struct entry *now)
{
    const struct entry *then = &pack->entries[i];
    char name[PATH_BYTES], text[PATH_BYTES], message[PATH_BYTES];
    uint64_t sample;
    dpb_split split = split_of(pack, i, &sample);
    listing_name(pack->listing, split, sample, name);
    snprintf(message, sizeof message, "it was packed from another state of the files: %.3000s %s",
             printable(name, text),
             then->name != now->name     ? "was not at this place"
             : then->bytes != now->bytes ? "had another size"
                                         : "has been modified since");
    return refuse(pack, message);
}

static dpb_status check_entries(const struct pack *pack, struct store *store)
{
    for (uint64_t i = 0; i < pack->n; i++) {
        struct entry now = look_at(pack, i);
        const struct entry *then = &pack->entries[i];
        if (then->name != now.name || then->bytes != now.bytes || then->modified != now.modified)
            return refuse_stale(pack, i, &now);
        bool stored = then->offset != PLACE_UNREADABLE;
        if (stored && (then->offset > pack->header.file_bytes ||
                       then->stored > pack->header.file_bytes - then->offset))
            return refuse(pack, "the pack is damaged: an image lies beyond its end");
        uint64_t sample;
        dpb_split split = split_of(pack, i, &sample);
        store->places[split][sample] = (struct place){then->offset, then->stored};
    }
    return DPB_OK;
}

static dpb_status open_existing(struct pack *pack, struct store *store, bool *found)
{
    int fd = open_to_read(pack->path, store->direct);
    *found = fd >= 0;
    if (fd < 0 && errno == ENOENT)
        return DPB_OK;
    if (fd < 0 && lacks_direct(image_host, pack->path, store->direct, errno))
        return DPB_UNSUPPORTED;
    if (fd < 0)
        return image_host->fail(DPB_IO, "%s: cannot be opened: %s", pack->path, strerror(errno));
    dpb_status status = read_index(pack, store->max_bytes, fd);
    DPB_THEN(status, check_entries(pack, store));
    if (status != DPB_OK) {
        close(fd);
        return status;
    }
    store->pack = fd;
    return DPB_OK;
}

/* Sets what is in the pack, and its path. */
static dpb_status choose_samples(struct pack *pack, const char *path,
                                 const struct dpb_data_request *request, struct store *store,
                                 char own_path[PATH_BYTES])
{
    const struct listing *listing = pack->listing;
    pack->path = path;
    pack->n = listing->splits[DPB_TRAIN].n + listing->splits[DPB_TEST].n;
    if (store->preload == PRELOAD_FILE)
        return DPB_OK;
    const uint64_t n_train = listing->splits[DPB_TRAIN].n;
    if (snprintf(own_path, PATH_BYTES, "%s.%" PRIu32 "-of-%" PRIu32, path, request->rank,
                 request->n_workers) >= PATH_BYTES)
        return image_host->fail(DPB_USAGE, "data.shard_file is longer than %d bytes",
                                PATH_BYTES - 32);
    pack->path = own_path;
    pack->rank = request->rank;
    pack->n_workers = request->n_workers;
    pack->n = n_train > pack->rank ? (n_train - pack->rank - 1) / pack->n_workers + 1 : 0;
    for (int split = 0; split < 2; split++)
        for (uint64_t i = 0; i < listing->splits[split].n; i++)
            store->places[split][i].offset = PLACE_NONE;
    return DPB_OK;
}

dpb_status pack_open(const char *path, const struct dpb_data_request *request, struct store *store)
{
    struct pack pack = {.listing = store->listing};
    char own_path[PATH_BYTES];
    DPB_TRY(choose_samples(&pack, path, request, store, own_path));
    pack.entries = image_host->alloc(entries_bytes(&pack));
    if (!pack.entries)
        return DPB_NO_MEMORY;
    bool found = false;
    dpb_status status = open_existing(&pack, store, &found);
    while (status == DPB_OK && !found && !request->info_only) {
        status = provide_pack(&pack, store->max_bytes);
        DPB_THEN(status, open_existing(&pack, store, &found));
    }
    image_host->release(pack.entries, entries_bytes(&pack));
    return status;
}
