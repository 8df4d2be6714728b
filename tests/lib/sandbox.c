/* sandbox.c - see sandbox.h. */
#include "lib/sandbox.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "lib/command.h"
#include "lib/test.h"
#include "lib/traces.h"

static char directory[64];

int sandbox_setup(void **state)
{
    char *build = realpath(build_directory(), NULL), *plugins = NULL;
    (void)state;
    if (!build || asprintf(&plugins, "%s/tests/plugins", build) < 0)
        return -1;
    setenv("DPB_BUILD", build, 1);
    setenv("DPBENCH_PLUGIN_PATH", plugins, 1);
    free(build);
    free(plugins);
    temporary_directory(directory);
    traces_adopt_orphans();
    return chdir(directory);
}

int sandbox_teardown(void **state)
{
    (void)state;
    if (chdir("/") != 0)
        return -1;
    remove_directory(directory);
    return 0;
}

void sandbox_write(const char *path, const char *format, ...)
{
    char *text;
    va_list list;
    va_start(list, format);
    assert_true(vasprintf(&text, format, list) >= 0);
    va_end(list);
    write_file(path, text, strlen(text));
    free(text);
}

void sandbox_copy_plugin(const char *into, const char *file, const char *text, size_t n,
                         char letter)
{
    char path[1024];
    snprintf(path, sizeof path, "%s/plugins/%s", build_directory(), file);
    FILE *from = fopen(path, "rb");
    assert_non_null(from);
    assert_int_equal(fseek(from, 0, SEEK_END), 0);
    size_t length = (size_t)ftell(from), n_changed = 0;
    char *bytes = malloc(length);
    assert_non_null(bytes);
    rewind(from);
    assert_true(fread(bytes, 1, length, from) == length);
    fclose(from);
    for (size_t i = 0; text && i + n <= length; i++)
        if (memcmp(bytes + i, text, n) == 0 && ++n_changed > 0)
            bytes[i] = letter;
    assert_true(!text || n_changed > 0);
    snprintf(path, sizeof path, "%s/%s", into, file);
    write_file(path, bytes, length);
    free(bytes);
}

/* The sanitizer's options without a preload. */
static char sanitizer_options[512];

void sandbox_preload(const char *name)
{
    char path[PATH_MAX], options[sizeof sanitizer_options + 32];
    const char *old = getenv("ASAN_OPTIONS");
    snprintf(sanitizer_options, sizeof sanitizer_options, "%s", old ? old : "");
    snprintf(options, sizeof options, "%s:verify_asan_link_order=0", sanitizer_options);
    snprintf(path, sizeof path, "%s/tests/preload/%s.so", build_directory(), name);
    setenv("ASAN_OPTIONS", options, 1);
    setenv("LD_PRELOAD", path, 1);
}

int sandbox_forget_preload(__attribute__((unused)) void **unused)
{
    if (getenv("LD_PRELOAD"))
        setenv("ASAN_OPTIONS", sanitizer_options, 1);
    return unsetenv("LD_PRELOAD");
}
