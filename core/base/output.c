/* output.c - see output.h. */
#include "base/output.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "base/log.h"
#include "base/text.h"

enum { LINKS = 40 }; /* as the kernel follows */

void dpb_output_directory(const char *path, char directory[PATH_MAX])
{
    const char *slash = strrchr(path, '/');
    size_t length = !slash ? 0 : slash == path ? 1 : (size_t)(slash - path);
    snprintf(directory, PATH_MAX, "%.*s", length == 0 ? 1 : (int)length, length == 0 ? "." : path);
}

/* ---- the place ----------------------------------------------------------------------------- */

/* `target`: of the link `path`. */
static bool follow(const char *target, char path[PATH_MAX])
{
    char directory[PATH_MAX], next[2 * PATH_MAX];
    dpb_output_directory(path, directory);
    const int n = target[0] == '/' ? snprintf(next, sizeof next, "%s", target)
                                   : snprintf(next, sizeof next, "%s/%s", directory, target);
    if (n >= PATH_MAX) {
        errno = ENAMETOOLONG;
        return false;
    }
    memcpy(path, next, (size_t)n + 1);
    return true;
}

/* With *fd >= 0, a descriptor that links led to; of another process: -2; of none: -1. */
static bool resolve(const char *given, char place[PATH_MAX], int *fd)
{
    char path[PATH_MAX], directory[PATH_MAX], real[PATH_MAX], target[PATH_MAX], own[64];
    *fd = -1;
    snprintf(own, sizeof own, "/proc/%ld/fd", (long)getpid());
    if (snprintf(path, sizeof path, "%s", given) >= PATH_MAX) {
        errno = ENAMETOOLONG;
        return false;
    }
    for (int i = 0; i < LINKS; i++) {
        const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
        dpb_output_directory(path, directory);
        if (!realpath(directory, real))
            return false;
        if (snprintf(place, PATH_MAX, "%s/%s", strcmp(real, "/") == 0 ? "" : real, name) >=
            PATH_MAX) {
            errno = ENAMETOOLONG;
            return false;
        }
        if (dpb_begins_with(real, "/proc/") && dpb_ends_on(real, "/fd"))
            *fd = strcmp(real, own) == 0 ? atoi(name) : -2;
        const ssize_t n = *fd == -1 ? readlink(place, target, sizeof target - 1) : -1;
        if (n < 0)
            return true; /* a file, or nothing */
        target[n] = '\0';
        memcpy(path, place, strlen(place) + 1);
        if (!follow(target, path))
            return false;
    }
    errno = ELOOP;
    return false;
}

bool dpb_output_place(const char *path, char place[PATH_MAX])
{
    int fd;
    return resolve(path, place, &fd);
}

bool dpb_output_is_descriptor(const char *path)
{
    char place[PATH_MAX];
    int fd;
    return resolve(path, place, &fd) && fd >= 0;
}

dpb_status dpb_output_check(const char *what, const char *path)
{
    char place[PATH_MAX];
    struct stat info;
    int fd;
    const bool there = stat(path, &info) == 0;
    if (dpb_ends_on(path, "/") || (there && S_ISDIR(info.st_mode)))
        return dpb_fail(DPB_USAGE, "%s %s is a directory: name a file in it", what, path);
    if (!resolve(path, place, &fd))
        return DPB_OK; /* a directory that is not there yet */
    if (fd >= 0 || (fd == -1 && (!there || S_ISREG(info.st_mode))))
        return DPB_OK;
    /* A rename would put a file in the place of the device: /dev/null would be gone. */
    return dpb_fail(DPB_USAGE,
                    "%s %s is no regular file and would be replaced by one; --json "
                    "prints the document to standard output, `run.results=` keeps no file",
                    what, path);
}

static bool is_same(const char *a, const char *b)
{
    char place[2][PATH_MAX];
    struct stat info[2];
    if (stat(a, &info[0]) == 0 && stat(b, &info[1]) == 0)
        return info[0].st_ino == info[1].st_ino && info[0].st_dev == info[1].st_dev &&
               S_ISREG(info[0].st_mode);
    return dpb_output_place(a, place[0]) && dpb_output_place(b, place[1]) &&
           strcmp(place[0], place[1]) == 0;
}

dpb_status dpb_outputs_apart(const struct dpb_named_file *files, size_t n)
{
    for (size_t i = 0; i < n; i++)
        for (size_t k = 0; k < n && files[i].written && files[i].path && files[i].path[0]; k++)
            if (k != i && files[k].path && files[k].path[0] &&
                is_same(files[i].path, files[k].path))
                return dpb_fail(DPB_USAGE,
                                "%s %s would be written in the place of %s %s, which is "
                                "%s; name another file",
                                files[i].option, files[i].path, files[k].option, files[k].path,
                                files[k].written ? "written, too" : "read");
    return DPB_OK;
}

/* ---- writing ------------------------------------------------------------------------------- */

static dpb_status cannot(const struct dpb_output *output, const char *why)
{
    return dpb_fail(DPB_IO, "%s: the file cannot be written: %s; an older file is unchanged",
                    output->given, why);
}

dpb_status dpb_output_open(const char *path, struct dpb_output *output)
{
    struct stat old;
    int fd;
    *output = (struct dpb_output){.fd = -1};
    snprintf(output->given, sizeof output->given, "%s", path);
    if (!resolve(path, output->path, &fd))
        return cannot(output, strerror(errno));
    if (fd >= 0) {
        output->fd = fcntl(fd, F_DUPFD_CLOEXEC, 3);
        return output->fd >= 0 ? DPB_OK : cannot(output, strerror(errno));
    }
    if (snprintf(output->temporary, PATH_MAX, "%s.%ld.tmp", output->path, (long)getpid()) >=
        PATH_MAX) {
        output->temporary[0] = '\0';
        return cannot(output, strerror(ENAMETOOLONG));
    }
    (void)unlink(output->temporary); /* of a process before with this number */
    output->fd = open(output->temporary, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (output->fd < 0) {
        output->temporary[0] = '\0';
        return cannot(output, strerror(errno));
    }
    if (stat(output->path, &old) == 0 && S_ISREG(old.st_mode))
        (void)fchmod(output->fd, old.st_mode & 0777);
    return DPB_OK;
}

void dpb_output_drop(struct dpb_output *output)
{
    if (output->fd >= 0)
        close(output->fd);
    if (output->temporary[0])
        unlink(output->temporary);
    output->fd = -1;
    output->temporary[0] = '\0';
}

dpb_status dpb_output_add(struct dpb_output *output, const void *bytes, size_t n)
{
    if (dpb_write_all(output->fd, bytes, n))
        return DPB_OK;
    const int error = errno;
    dpb_output_drop(output);
    return cannot(output, strerror(error));
}

/* Syncs and closes. Nothing is left of what is not whole. */
static dpb_status finish(struct dpb_output *output)
{
    if (output->fd < 0)
        return DPB_OK; /* it was done for another name */
    bool good = output->temporary[0] == '\0' || fsync(output->fd) == 0;
    int error = errno;
    if (close(output->fd) != 0 && good) {
        good = false;
        error = errno;
    }
    output->fd = -1;
    if (good)
        return DPB_OK;
    dpb_output_drop(output);
    return cannot(output, strerror(error));
}

/* A rename is on disk only once its directory is synced. Some file systems cannot: that is no
 * failure. */
static bool sync_directory(const char *path)
{
    char directory[PATH_MAX];
    dpb_output_directory(path, directory);
    const int fd = open(directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    const bool synced = fd < 0 || fsync(fd) == 0 || (errno != EIO && errno != ENOSPC);
    const int error = errno;
    if (fd >= 0)
        close(fd);
    errno = error;
    return synced;
}

static dpb_status named(struct dpb_output *output, const char *name, const char *place, int error)
{
    if (error == 0) {
        output->temporary[0] = '\0';
        return sync_directory(place)
                   ? DPB_OK
                   : dpb_fail(DPB_IO, "%s: is in place, but its directory cannot be synced: %s",
                              name, strerror(errno));
    }
    char left[PATH_MAX]; /* the only copy */
    memcpy(left, output->temporary, sizeof left);
    output->temporary[0] = '\0';
    return dpb_fail(DPB_IO, "%s: the file cannot be put in its place: %s; it is %s", name,
                    strerror(error), left);
}

dpb_status dpb_output_keep(struct dpb_output *output)
{
    DPB_TRY(finish(output));
    if (output->temporary[0] == '\0')
        return DPB_OK;
    return named(output, output->given, output->path,
                 rename(output->temporary, output->path) == 0 ? 0 : errno);
}

static bool is_missing(int error)
{
    return error == EINVAL || error == ENOSYS || error == EPERM || error == EOPNOTSUPP;
}

/* 0, or errno. Where a file system knows neither renames without replacing nor hard links, an empty
 * file takes the name first. */
static int name_if_free(const char *temporary, const char *name)
{
    if (renameat2(AT_FDCWD, temporary, AT_FDCWD, name, RENAME_NOREPLACE) == 0)
        return 0;
    if (!is_missing(errno))
        return errno;
    if (link(temporary, name) == 0) {
        unlink(temporary);
        return 0;
    }
    if (!is_missing(errno) && errno != EMLINK)
        return errno;
    const int fd = open(name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (fd < 0)
        return errno;
    close(fd);
    return rename(temporary, name) == 0 ? 0 : errno;
}

dpb_status dpb_output_keep_new(struct dpb_output *output, const char *name, bool *taken)
{
    *taken = false;
    DPB_TRY(finish(output));
    const int error = name_if_free(output->temporary, name);
    *taken = error == EEXIST;
    return *taken ? DPB_OK : named(output, name, name, error);
}

dpb_status dpb_output_write(const char *path, const char *text, size_t length)
{
    struct dpb_output output;
    DPB_TRY(dpb_output_open(path, &output));
    DPB_TRY(dpb_output_add(&output, text, length));
    return dpb_output_keep(&output);
}
