/* tuning_file.c - see tuning_file.h. */
#include "tuning_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { LINE_BYTES = 512, FILE_MOST = 16 << 20 };

/* In a container the directory is often not there yet. A failure here is reported where the file is
 * opened. */
static void find_cache(char path[TUNING_PATH_BYTES])
{
    const char *cache = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
    if (cache && cache[0])
        snprintf(path, TUNING_PATH_BYTES, "%s", cache);
    else if (home && home[0])
        snprintf(path, TUNING_PATH_BYTES, "%s/.cache", home);
    if (path[0])
        mkdir(path, 0700);
}

static void find_path(const struct options *options, char path[TUNING_PATH_BYTES])
{
    path[0] = 0;
    if (strcmp(options->tuning, "auto") != 0) {
        snprintf(path, TUNING_PATH_BYTES, "%s", options->tuning);
        return;
    }
    find_cache(path);
    const size_t n = strlen(path);
    if (n > 0)
        snprintf(path + n, TUNING_PATH_BYTES - n, "/dpbench-cuda-tuning");
}

/* The first n bytes of a file, with zeros for those that it lacks, and a 0 behind; @owned: free().
 * NULL: no memory. */
static char *read_whole(int fd, size_t n)
{
    size_t have = 0;
    char *all = malloc(n + 1);
    while (all && have < n) {
        const ssize_t got = read(fd, all + have, n - have);
        if (got <= 0)
            break;
        have += (size_t)got;
    }
    if (all)
        memset(all + have, 0, n + 1 - have);
    return all;
}

/* Whole lines: another process may be at the last one. NULL: not there, or no memory. */
static char *read_lines(const char *path)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    struct stat about;
    if (fd < 0)
        return NULL;
    if (fstat(fd, &about) != 0 || about.st_size > FILE_MOST || about.st_size < 0)
        about.st_size = 0;
    char *text = read_whole(fd, (size_t)about.st_size);
    char *end = text ? strrchr(text, '\n') : NULL;
    if (text)
        *(end ? end + 1 : text) = 0;
    close(fd);
    return text;
}

/* `lock` is the file, opened to append; without it the reason is that of opening it anew. */
static void append(struct tuning_file *file, const char *line, size_t n)
{
    if (!file->path[0] || file->full)
        return;
    const int fd = file->lock >= 0 ? file->lock : open(file->path, O_WRONLY | O_APPEND | O_CLOEXEC);
    file->full = fd < 0 || write(fd, line, n) != (ssize_t)n;
    if (file->full)
        cuda_host->warn("tuning_not_kept",
                        "device cuda: the algorithms that were tried could not be kept in %s (%s): "
                        "every run tries them; set device.tuning",
                        file->path, strerror(errno));
    if (fd >= 0 && fd != file->lock)
        close(fd);
}

/* A byte far behind the file's end, by a hash (FNV-1a). */
static off_t byte_of(const struct device *device)
{
    uint64_t hash = UINT64_C(14695981039346656037);
    for (const char *at = device->pci; *at; at++)
        hash = (hash ^ (unsigned char)*at) * 1099511628211u;
    return (off_t)(((uint64_t)1 << 61) + (hash >> 4));
}

/* Blocks until no other process holds the lock of a byte of an open file, then locks it. Meanwhile
 * this rank gives signs of life. False: a failure, see errno. */
static bool await_lock(int fd, struct flock *byte)
{
    enum { LOOK_NS = 20 * 1000 * 1000, NOTE_NS = 1000 * 1000 * 1000 };
    const struct timespec pause = {.tv_nsec = LOOK_NS};
    int64_t noted_ns = cuda_host->now_ns();
    while (fcntl(fd, F_OFD_SETLK, byte) != 0) {
        const int64_t now_ns = cuda_host->now_ns();
        if (errno != EAGAIN && errno != EACCES)
            return false;
        if (now_ns - noted_ns > NOTE_NS) {
            cuda_host->note("compile", UINT64_MAX, UINT32_MAX);
            noted_ns = now_ns;
        }
        nanosleep(&pause, NULL);
    }
    return true;
}

/* Without a writable file, for which `append` warns, it waits for no process. */
bool cuda_tuning_first_trial(struct tuning_file *file)
{
    struct flock byte = {
        .l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = byte_of(file->device), .l_len = 1};
    if (file->trying || !file->path[0])
        return false;
    file->trying = true;
    file->lock = open(file->path, O_RDWR | O_APPEND | O_CREAT | O_CLOEXEC, 0666);
    if (file->lock < 0)
        return false;
    if (!await_lock(file->lock, &byte))
        cuda_host->log(
            DPB_LOG_INFO,
            "device cuda: %s cannot be locked (%s): workers that share a GPU may disturb "
            "each other's trials",
            file->path, strerror(errno));
    free(file->known);
    file->known = read_lines(file->path);
    return true;
}

void cuda_tuning_open(const struct device *device, struct tuning_file *file)
{
    *file = (struct tuning_file){.device = device, .lock = -1};
    find_path(&device->options, file->path);
    if (file->path[0])
        file->known = read_lines(file->path);
}

void cuda_tuning_close(struct tuning_file *file)
{
    if (file->lock >= 0)
        close(file->lock);
    free(file->known);
}

bool cuda_tuning_look_up(const struct tuning_file *file, const char *key, int *rank)
{
    const size_t n = strlen(key);
    bool found = false;
    for (const char *line = file->known; line && *line; line = strchr(line, '\n') + 1) {
        if (strncmp(line, key, n) == 0 && line[n] == '\t' && sscanf(line + n, "%d", rank) == 1)
            found = true;
    }
    return found;
}

bool cuda_tuning_known(const struct device *device, const char *key, int *rank)
{
    struct tuning_file file;
    if (!cuda_tunes(&device->options))
        return false;
    cuda_tuning_open(device, &file);
    bool found = cuda_tuning_look_up(&file, key, rank);
    cuda_tuning_close(&file);
    return found;
}

dpb_status cuda_tuning_add(struct tuning_file *file, const char *key, int rank)
{
    char line[LINE_BYTES];
    const size_t n = (size_t)snprintf(line, sizeof line, "%s\t%d\n", key, rank);
    const size_t before = file->known ? strlen(file->known) : 0;
    char *more = realloc(file->known, before + n + 1);
    if (!more)
        return cuda_no_memory();
    memcpy(more + before, line, n + 1);
    file->known = more;
    append(file, line, n);
    return DPB_OK;
}
