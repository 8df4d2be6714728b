/*
 * test_output.c - where an output goes: through links, into descriptors, into the place of an older
 * file; and on file systems that lack what names a file without replacing another.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/log.h"
#include "base/output.h"
#include "lib/command.h"
#include "lib/test.h"

/* The file system lacks them, with this error; 0: it has them. */
static int lacks_flags, lacks_links;

int renameat2(int from_fd, const char *from, int to_fd, const char *to, unsigned int flags)
{
    if (lacks_flags) {
        errno = lacks_flags;
        return -1;
    }
    int (*real)(int, const char *, int, const char *, unsigned int) = NULL;
    *(void **)&real = dlsym(RTLD_NEXT, "renameat2");
    return real(from_fd, from, to_fd, to, flags);
}

int link(const char *from, const char *to)
{
    if (lacks_links) {
        errno = lacks_links;
        return -1;
    }
    return linkat(AT_FDCWD, from, AT_FDCWD, to, 0);
}

static void expect_content(const char *path, const char *wanted)
{
    char text[64] = "";
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    text[fread(text, 1, sizeof text - 1, file)] = '\0';
    fclose(file);
    assert_string_equal(text, wanted);
}

static void write_old(const char *path, mode_t mode)
{
    const int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    assert_int_equal(write(fd, "old", 3), 3);
    assert_int_equal(fchmod(fd, mode), 0);
    close(fd);
}

static bool is_link(const char *path)
{
    struct stat info;
    return lstat(path, &info) == 0 && S_ISLNK(info.st_mode);
}

/* The file that a link names is replaced, wherever it is, and where it is not there yet. */
TEST(links_stay)
{
    assert_int_equal(mkdir("far", 0777), 0);
    write_old("far/file", 0640);
    assert_int_equal(symlink("far/file", "relative"), 0);
    assert_int_equal(symlink("../relative", "far/chain"), 0);
    assert_int_equal(symlink("far/none", "dangling"), 0);
    assert_int_equal(symlink("round", "round"), 0);
    assert_int_equal(dpb_output_write("far/chain", "new", 3), DPB_OK);
    assert_true(is_link("far/chain") && is_link("relative"));
    expect_content("far/file", "new");
    struct stat info;
    assert_int_equal(stat("far/file", &info), 0);
    assert_int_equal(info.st_mode & 0777, 0640);
    assert_int_equal(dpb_output_write("dangling", "new", 3), DPB_OK);
    assert_true(is_link("dangling"));
    expect_content("far/none", "new");
    assert_int_equal(dpb_output_write("round", "new", 3), DPB_IO);
    assert_int_equal(dpb_output_write("nowhere/file", "new", 3), DPB_IO);
}

/* "Standard output" may be a file, which is not replaced, and has more in it. */
TEST(descriptors_are_written_into)
{
    char text[8] = "", name[64];
    int ends[2];
    assert_int_equal(pipe(ends), 0);
    snprintf(name, sizeof name, "/dev/fd/%d", ends[1]);
    assert_int_equal(symlink(name, "to_pipe"), 0);
    assert_int_equal(dpb_output_check("--output", "to_pipe"), DPB_OK);
    assert_int_equal(dpb_output_write("to_pipe", "piped", 5), DPB_OK);
    assert_int_equal(read(ends[0], text, sizeof text), 5);
    assert_string_equal(text, "piped");
    assert_true(is_link("to_pipe"));

    const int fd = open("redirected", O_WRONLY | O_CREAT | O_CLOEXEC, 0666);
    struct stat before, after;
    assert_int_equal(write(fd, "first ", 6), 6);
    assert_int_equal(fstat(fd, &before), 0);
    snprintf(name, sizeof name, "/proc/self/fd/%d", fd);
    assert_int_equal(dpb_output_write(name, "second", 6), DPB_OK);
    expect_content("redirected", "first second");
    assert_int_equal(stat("redirected", &after), 0);
    assert_true(before.st_ino == after.st_ino);

    assert_int_equal(dpb_output_check("--output", "/dev/null"), DPB_USAGE);
    assert_int_equal(dpb_output_check("--output", "/proc/1/fd/1"), DPB_USAGE);
    assert_int_equal(dpb_output_check("--output", "/tmp/"), DPB_USAGE);
}

/* Writes "new" under the first free of the names "one" and "two". */
static dpb_status write_free(void)
{
    struct dpb_output output;
    bool taken;
    DPB_TRY(dpb_output_open("stem", &output));
    DPB_TRY(dpb_output_add(&output, "new", 3));
    dpb_status status = dpb_output_keep_new(&output, "one", &taken);
    if (status == DPB_OK && taken)
        status = dpb_output_keep_new(&output, "two", &taken);
    assert_true(status != DPB_OK || !taken);
    dpb_output_drop(&output);
    return status;
}

TEST(a_name_is_taken_where_it_is_free)
{
    static const int flags[] = {0, EINVAL, ENOSYS}, links[] = {0, EPERM, EOPNOTSUPP, ENOSYS};
    for (size_t f = 0; f < sizeof flags / sizeof *flags; f++)
        for (size_t l = 0; l < sizeof links / sizeof *links; l++) {
            unlink("one");
            unlink("two");
            lacks_flags = flags[f];
            lacks_links = links[l];
            assert_int_equal(write_free(), DPB_OK);
            expect_content("one", "new");
            write_old("one", 0644);
            assert_int_equal(write_free(), DPB_OK);
            expect_content("one", "old");
            expect_content("two", "new");
            assert_int_not_equal(access("stem", F_OK), 0);
        }
    lacks_flags = EINVAL;
    lacks_links = EIO;
    unlink("one");
    char left[64];
    dpb_first_error_clear();
    assert_int_equal(write_free(), DPB_IO);
    snprintf(left, sizeof left, "stem.%ld.tmp", (long)getpid());
    expect_content(left, "new"); /* the only copy */
    assert_non_null(strstr(dpb_first_error(NULL), left));
    lacks_flags = lacks_links = 0;
}

TEST(what_failed_leaves_nothing)
{
    struct dpb_output output;
    char temporary[PATH_MAX];
    write_old("kept", 0600);
    assert_int_equal(dpb_output_open("kept", &output), DPB_OK);
    assert_int_equal(dpb_output_add(&output, "half", 4), DPB_OK);
    memcpy(temporary, output.temporary, sizeof temporary);
    assert_int_equal(access(temporary, F_OK), 0);
    dpb_output_drop(&output);
    expect_content("kept", "old");
    assert_int_equal(access(temporary, F_OK), -1);
}

static int enter(void **state)
{
    return own_directory_setup(state) || chdir(own_directory) != 0;
}

TEST_MAIN(enter, own_directory_teardown)
