/* plan_file.c - see plan_file.h. */
#include "plan_file.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tuning_file.h"

enum { HEAD_BYTES = TUNING_KEY_BYTES + 128, PATH_BYTES = TUNING_PATH_BYTES + 64 };

/* False: no plans are kept. */
static bool find_directory(const struct device *device, char path[PATH_BYTES])
{
    char tuning[TUNING_PATH_BYTES];
    if (!cuda_tunes(&device->options))
        return false;
    cuda_tuning_path(&device->options, tuning);
    return tuning[0] && snprintf(path, PATH_BYTES, "%s.plans", tuning) < TUNING_PATH_BYTES;
}

/* The plan's file. False: no plans are kept. */
static bool find_file(const struct device *device, const char *key, int rank, char path[PATH_BYTES])
{
    char text[TUNING_KEY_BYTES + 16];
    if (!find_directory(device, path))
        return false;
    const size_t at = strlen(path);
    const int n = snprintf(text, sizeof text, "%s\t%d", key, rank);
    snprintf(path + at, PATH_BYTES - at, "/%016llx",
             (unsigned long long)cuda_hash(CUDA_HASH, text, (size_t)n));
    return true;
}

/* The head of the file of a plan and its text. */
static size_t write_head(const char *key, int rank, const char *text, size_t bytes,
                         char head[HEAD_BYTES])
{
    return (size_t)snprintf(head, HEAD_BYTES, "dpbench plan 1 %016llx %zu\n%s\t%d\n",
                            (unsigned long long)cuda_hash(CUDA_HASH, text, bytes), bytes, key,
                            rank);
}

/* The file goes: no later reader, in this process or another, finds it and warns again. */
static void refuse(const char *path, const char *why)
{
    if (unlink(path) == 0 || errno != ENOENT)
        cuda_host->warn("plan_refused",
                        "device cuda: the plan of cuDNN's %s %s: it is made anew and kept there",
                        path, why);
}

void cuda_plan_file_refuse(const struct device *device, const char *key, int rank, const char *why)
{
    char path[PATH_BYTES];
    if (find_file(device, key, rank, path))
        refuse(path, why);
}

/* ---- read ---------------------------------------------------------------------------------- */

/* NULL: it may be read. */
static const char *fault_of(const struct stat *about)
{
    if (!S_ISREG(about->st_mode))
        return "is no file";
    if (about->st_uid != geteuid() || (about->st_mode & (S_IWGRP | S_IWOTH)))
        return "may be written by another user";
    return about->st_size > PLAN_FILE_MOST ? "is too large" : NULL;
}

/* Takes the head away from the text; false: this is not the plan's head. */
static bool cut_head(char *all, size_t *n, const char *key, int rank)
{
    char head[HEAD_BYTES];
    const char *line = memchr(all, '\n', *n);
    const char *end = line ? memchr(line + 1, '\n', *n - (size_t)(line + 1 - all)) : NULL;
    if (!end)
        return false;
    const char *text = end + 1;
    const size_t at = (size_t)(text - all), bytes = *n - at;
    if (write_head(key, rank, text, bytes, head) != at || memcmp(all, head, at) != 0)
        return false;
    memmove(all, text, bytes + 1);
    *n = bytes;
    return true;
}

char *cuda_plan_file_read(const struct device *device, const char *key, int rank, size_t *bytes)
{
    char path[PATH_BYTES], *all = NULL;
    struct stat about;
    if (!find_file(device, key, rank, path))
        return NULL;
    const int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (fd < 0 && errno == ENOENT)
        return NULL;
    const char *fault = fd < 0 || fstat(fd, &about) != 0 ? "cannot be read" : fault_of(&about);
    if (!fault) {
        *bytes = (size_t)about.st_size;
        all = cuda_read_whole(fd, *bytes);
        fault = !all || cut_head(all, bytes, key, rank) ? NULL : "is damaged";
    }
    if (fd >= 0)
        close(fd);
    if (!fault)
        return all;
    free(all);
    refuse(path, fault);
    return NULL;
}

/* ---- write --------------------------------------------------------------------------------- */

static uint64_t bytes_in(const char *path)
{
    uint64_t bytes = 0;
    struct stat about;
    DIR *directory = opendir(path);
    for (struct dirent *entry; directory && (entry = readdir(directory));)
        if (fstatat(dirfd(directory), entry->d_name, &about, AT_SYMLINK_NOFOLLOW) == 0 &&
            S_ISREG(about.st_mode))
            bytes += (uint64_t)about.st_size;
    if (directory)
        closedir(directory);
    return bytes;
}

static bool write_whole(int fd, const char *bytes, size_t n)
{
    while (n > 0) {
        const ssize_t written = write(fd, bytes, n);
        if (written <= 0)
            return false;
        bytes += written;
        n -= (size_t)written;
    }
    return true;
}

/* mkstemp: for this user alone. */
static bool replace(const char *path, const char *head, size_t head_bytes, const char *text,
                    size_t bytes)
{
    char temporary[PATH_BYTES + 8];
    snprintf(temporary, sizeof temporary, "%s.XXXXXX", path);
    const int fd = mkstemp(temporary);
    if (fd < 0)
        return false;
    bool done = write_whole(fd, head, head_bytes) && write_whole(fd, text, bytes);
    done = close(fd) == 0 && done && rename(temporary, path) == 0;
    const int failed = errno;
    if (!done)
        unlink(temporary);
    errno = failed;
    return done;
}

void cuda_plan_file_write(const struct device *device, const char *key, int rank, const char *text,
                          size_t bytes)
{
    char directory[PATH_BYTES], path[PATH_BYTES], head[HEAD_BYTES];
    if (!find_directory(device, directory) || !find_file(device, key, rank, path))
        return;
    bool kept = mkdir(directory, 0700) == 0 || errno == EEXIST;
    const size_t head_bytes = write_head(key, rank, text, bytes, head);
    if (kept && (head_bytes + bytes > PLAN_FILE_MOST ||
                 bytes_in(directory) + head_bytes + bytes > PLAN_FILES_MOST)) {
        errno = EFBIG;
        kept = false;
    }
    kept = kept && replace(path, head, head_bytes, text, bytes);
    if (!kept)
        cuda_host->warn("plan_not_kept",
                        "device cuda: plans of cuDNN's cannot be kept in %s (%s; %llu MiB are the "
                        "most): every run makes them; remove what is old there, or set "
                        "device.tuning",
                        directory, strerror(errno), (unsigned long long)(PLAN_FILES_MOST >> 20));
}

/* ---- turns --------------------------------------------------------------------------------- */

/* A lock for reading: all waiting processes continue at once. */
static void wait_for_other(int fd, struct flock byte, const char *path)
{
    byte.l_type = F_RDLCK;
    cuda_host->log(DPB_LOG_INFO,
                   "device cuda: another process compiles cuDNN's plans and keeps them in %s: "
                   "waits for it, %d s at most",
                   path, PLAN_WAIT_S);
    if (!cuda_await_lock(fd, &byte, PLAN_WAIT_S * INT64_C(1000000000)))
        cuda_host->warn("plans_awaited",
                        "device cuda: another process has compiled cuDNN's plans for %d s and "
                        "still holds %s: this one compiles them, too",
                        PLAN_WAIT_S, path);
}

int cuda_plan_file_turn(const struct device *device, uint64_t keys)
{
    char path[PATH_BYTES];
    struct flock byte = {
        .l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = (off_t)(keys >> 2), .l_len = 1};
    if (!find_directory(device, path))
        return -1;
    mkdir(path, 0700);
    strcat(path, "/turn");
    const int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0 || fcntl(fd, F_OFD_SETLK, &byte) == 0)
        return fd;
    if (errno == EAGAIN || errno == EACCES)
        wait_for_other(fd, byte, path);
    close(fd);
    return -1;
}
