/*
 * store.c - the bytes of a file: read from where it lies, or kept since the source was opened, in
 * memory or in a pack.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include "lib/files/read_at.h"
#include "samples.h"

/* ---- in memory ----------------------------------------------------------------------------- */

static bool is_wanted(const struct dpb_data_request *request, int split, uint64_t sample)
{
    return split == DPB_TEST || !request->sharded || sample % request->n_workers == request->rank;
}

/* Fills in places of the wanted files, as many bytes as they have now. */
static void measure(struct store *store, const struct dpb_data_request *request, int split)
{
    struct place *places = store->places[split];
    for (uint64_t i = 0; i < store->listing->splits[split].n; i++) {
        char path[PATH_BYTES];
        struct stat status;
        places[i].offset = PLACE_NONE;
        if (!is_wanted(request, split, i))
            continue;
        listing_path(store->listing, split, i, path);
        if (stat(path, &status) != 0 || !S_ISREG(status.st_mode) ||
            (uint64_t)status.st_size > store->max_bytes)
            continue; /* a later read of the file reports the reason */
        places[i] = (struct place){store->memory_bytes, (uint64_t)status.st_size};
        store->memory_bytes += (uint64_t)status.st_size;
    }
}

static dpb_status load_split(struct store *store, int split, struct buffer *buffer)
{
    struct place *places = store->places[split];
    for (uint64_t i = 0; i < store->listing->splits[split].n; i++) {
        char path[PATH_BYTES], reason[REASON_BYTES];
        size_t n = 0;
        if (places[i].offset == PLACE_NONE)
            continue;
        listing_path(store->listing, split, i, path);
        verdict result = read_image_file(path, store->direct, store->max_bytes, buffer, &n, reason);
        if (result == BROKEN)
            return DPB_IO;
        if (result == GOOD && n <= places[i].bytes) {
            memcpy(store->memory + places[i].offset, buffer->bytes, n);
            places[i].bytes = n;
            atomic_fetch_add(&store->bytes_read, n);
        } else {
            places[i].offset = PLACE_NONE; /* gone or grown in between */
        }
    }
    return DPB_OK;
}

static dpb_status load_into_memory(struct store *store, const struct dpb_data_request *request)
{
    struct buffer buffer = {.bytes = NULL};
    for (int split = 0; split < 2; split++)
        measure(store, request, split);
    store->memory = image_host->alloc((size_t)store->memory_bytes);
    if (!store->memory)
        return DPB_NO_MEMORY;
    dpb_status status = load_split(store, DPB_TRAIN, &buffer);
    DPB_THEN(status, load_split(store, DPB_TEST, &buffer));
    buffer_release(&buffer);
    image_host->log(DPB_LOG_DEBUG, "data.preload: %" PRIu64 " bytes of files are in memory",
                    atomic_load(&store->bytes_read));
    return status;
}

/* ---- all ----------------------------------------------------------------------------------- */

static size_t places_bytes(const struct store *store, int split)
{
    return (size_t)store->listing->splits[split].n * sizeof *store->places[split];
}

void store_close(struct store *store)
{
    if (!store->listing)
        return;
    for (int split = 0; split < 2; split++)
        image_host->release(store->places[split], places_bytes(store, split));
    image_host->release(store->memory, (size_t)store->memory_bytes);
    if (store->pack >= 0)
        close(store->pack);
}

/* Before the run, not at the first file that is fetched. */
static dpb_status check_direct(const struct store *store)
{
    char path[PATH_BYTES];
    listing_path(store->listing, DPB_TRAIN, 0, path);
    const int fd = open_to_read(path, true);
    if (fd < 0)
        return lacks_direct(image_host, path, true, errno) ? DPB_UNSUPPORTED : DPB_OK;
    close(fd);
    return DPB_OK;
}

static dpb_status fill_store(struct store *store, const struct store_args *args)
{
    if (store->direct)
        DPB_TRY(check_direct(store));
    bool keeps_nothing = args->request->info_only; /* still, a pack must be good */
    if (store->preload == PRELOAD_NONE || (keeps_nothing && store->preload != PRELOAD_FILE))
        return DPB_OK;
    for (int split = 0; split < 2; split++) {
        store->places[split] = image_host->alloc(places_bytes(store, split));
        if (!store->places[split])
            return DPB_NO_MEMORY;
    }
    return store->preload == PRELOAD_MEMORY ? load_into_memory(store, args->request)
                                            : pack_open(args->shard_file, args->request, store);
}

dpb_status store_open(const struct store_args *args, struct store *store)
{
    *store = (struct store){.listing = args->listing,
                            .preload = args->preload,
                            .direct = args->direct,
                            .max_bytes = args->max_bytes,
                            .pack = -1};
    dpb_status status = fill_store(store, args);
    if (status != DPB_OK) {
        store_close(store);
        *store = (struct store){.listing = NULL};
    }
    return status;
}

static verdict read_pack(struct store *store, const struct place *place, struct buffer *buffer,
                         char reason[REASON_BYTES])
{
    if (place->bytes > store->max_bytes) {
        snprintf(reason, REASON_BYTES, "%" PRIu64 " bytes are more than data.max_pixels make",
                 place->bytes);
        return BAD;
    }
    if (!buffer_reserve(buffer, (size_t)place->bytes + 1))
        return BROKEN;
    size_t got;
    const bool read =
        read_at(store->pack, buffer->bytes, (size_t)place->bytes, place->offset, &got);
    if (read && got == place->bytes)
        return GOOD;
    image_host->fail(DPB_IO, "data.shard_file: byte %" PRIu64 " cannot be read: %s",
                     place->offset + got, read ? "the file has been cut" : strerror(errno));
    return BROKEN;
}

verdict store_read(struct store *store, dpb_split split, uint64_t sample, struct buffer *buffer,
                   const uint8_t **bytes, size_t *n, char reason[REASON_BYTES])
{
    struct place place = {.offset = PLACE_NONE};
    verdict result = GOOD;
    if (store->places[split])
        place = store->places[split][sample];
    if (place.offset == PLACE_UNREADABLE) {
        snprintf(reason, REASON_BYTES, "could not be read when it was packed");
        return BAD;
    }
    *n = (size_t)place.bytes;
    if (store->preload == PRELOAD_MEMORY && place.offset != PLACE_NONE) {
        *bytes = store->memory + place.offset;
        return GOOD;
    }
    if (place.offset == PLACE_NONE) {
        char path[PATH_BYTES];
        listing_path(store->listing, split, sample, path);
        result = read_image_file(path, store->direct, store->max_bytes, buffer, n, reason);
    } else {
        result = read_pack(store, &place, buffer, reason);
    }
    if (result == GOOD)
        atomic_fetch_add(&store->bytes_read, *n);
    *bytes = buffer->bytes;
    return result;
}
