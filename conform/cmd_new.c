/* cmd_new.c - `dpbench new KIND NAME`: writes a plugin to begin with, from templates/. */
#include <errno.h>
#include <fcntl.h>
#include <glob.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/log.h"
#include "base/text.h"
#include "cli/cli.h"

/* The replacements of the templates' words. */
struct words {
    const char *kind, *name;
    char example[64]; /* the name in the templates of this kind */
};

/* Writes the text with its words replaced. */
static void write_words(FILE *out, const char *text, const struct words *words)
{
    const char *const pairs[][2] = {
        {"@KIND@", words->kind}, {"@NAME@", words->name}, {words->example, words->name}};
    while (*text != '\0') {
        size_t i = 0;
        while (i < 3 && !dpb_begins_with(text, pairs[i][0]))
            i++;
        if (i < 3) {
            fputs(pairs[i][1], out);
            text += strlen(pairs[i][0]);
        } else {
            fputc(*text++, out);
        }
    }
}

/* The file `template` as a new one in the directory `name`, its name's words replaced, too. */
static dpb_status copy_template(const char *template, const struct words *words)
{
    char path[PATH_MAX] = "", *text = NULL;
    const char *slash = strrchr(template, '/');
    FILE *named = fmemopen(path, sizeof path, "w");
    DPB_TRY(dpb_allocated(named));
    fprintf(named, "%s/", words->name);
    write_words(named, slash + 1, words);
    fclose(named);
    DPB_TRY(dpb_shared_read(template, &text));
    int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    FILE *out = fd < 0 ? NULL : fdopen(fd, "w");
    bool good = out != NULL;
    if (good) {
        write_words(out, text, words);
        good = !ferror(out);
        good &= fclose(out) == 0;
    }
    free(text);
    if (!good)
        return dpb_fail(DPB_IO, "%s cannot be written: %s", path, strerror(errno));
    printf("%s\n", path);
    return DPB_OK;
}

/* KIND_NAME.c among the templates has the name that they all use. */
static dpb_status find_example(const glob_t *files, struct words *words)
{
    for (size_t i = 0; i < files->gl_pathc; i++) {
        const char *file = strrchr(files->gl_pathv[i], '/') + 1, *dot = strrchr(file, '.');
        size_t n = strlen(words->kind);
        if (!dot || strcmp(dot, ".c") != 0 || !dpb_begins_with(file, words->kind))
            continue;
        snprintf(words->example, sizeof words->example, "%.*s", (int)(dot - file - (int)n - 1),
                 file + n + 1);
        return DPB_OK;
    }
    return dpb_fail(DPB_IO, "the templates of kind %s have no source", words->kind);
}

/* A plugin of this name would hide the new one, or be hidden. */
static dpb_status refuse_taken(const struct words *words)
{
    struct dpb_plugin_row *rows = NULL;
    size_t n = 0;
    dpb_status status = dpb_plugin_list(&dpb_host, DPB_PLUGIN_ALL_KINDS, NULL, &rows, &n);
    for (size_t i = 0; i < n && status == DPB_OK; i++)
        if (rows[i].plugin && strcmp(rows[i].plugin->name, words->name) == 0 &&
            strcmp(dpb_plugin_kind_name[rows[i].kind], words->kind) == 0)
            status = dpb_fail(DPB_USAGE, "there is a %s '%s' in %s; take another name", words->kind,
                              words->name, rows[i].path);
    free(rows);
    return status;
}

static dpb_status copy_all(const char *templates, struct words *words)
{
    char pattern[PATH_MAX + 64];
    glob_t files;
    snprintf(pattern, sizeof pattern, "%s/%s/*", templates, words->kind);
    if (glob(pattern, 0, NULL, &files) != 0)
        return dpb_fail(DPB_UNSUPPORTED,
                        "there is no template of kind '%s': take model, data, comm or codec; for a "
                        "device begin with the one in docs/writing-plugins.md",
                        words->kind);
    snprintf(pattern, sizeof pattern, "%s/Makefile", templates);
    dpb_status status = glob(pattern, GLOB_APPEND, NULL, &files) == 0
                            ? find_example(&files, words)
                            : dpb_fail(DPB_IO, "%s: %s", pattern, strerror(errno));
    if (status == DPB_OK && mkdir(words->name, 0777) != 0)
        status = dpb_fail(DPB_USAGE, "the directory %s cannot be made: %s", words->name,
                          strerror(errno));
    for (size_t i = 0; i < files.gl_pathc && status == DPB_OK; i++)
        status = copy_template(files.gl_pathv[i], words);
    globfree(&files);
    return status;
}

static dpb_status make_plugin(const struct dpb_command *self, int argc, char **argv)
{
    char templates[PATH_MAX];
    if (argc != 3)
        return dpb_usage_error(self, "a kind and a name are wanted");
    struct words words = {.kind = argv[1], .name = argv[2]};
    if (!dpb_plugin_name_valid(words.kind) || !dpb_plugin_name_valid(words.name))
        return dpb_usage_error(self, "'%s' is no name: names match [a-z0-9_]+",
                               dpb_plugin_name_valid(words.kind) ? words.name : words.kind);
    DPB_TRY(dpb_shared_directory("templates", templates));
    DPB_TRY(refuse_taken(&words));
    DPB_TRY(copy_all(templates, &words));
    printf("in %s: `make` builds it, `make check` holds it to its conformance suite, `make run` "
           "runs %s.ini\n",
           words.name, words.name);
    return DPB_OK;
}

static int command_new(const struct dpb_command *self, int argc, char **argv)
{
    return dpb_status_exit_code(make_plugin(self, argc, argv));
}

DPB_PROGRAM("new", command_new)
