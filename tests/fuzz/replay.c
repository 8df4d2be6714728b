/*
 * replay.c - runs a fuzz target on all files of its corpus, once each and in order, without
 * libFuzzer:
 *
 *     fuzz_NAME [FILE...]      without: those of tests/fuzz/corpus/NAME
 *
 * A file that ends the process was a finding; its name is printed before it is run. Those named
 * good-* must go all the way (fuzz_used).
 */
#include "tests/fuzz/fuzz.h"

#include <dirent.h>
#include <unistd.h>

static int n_refused;

static void run_file(const char *path)
{
    size_t size = 0, capacity = 1 << 20;
    uint8_t *data = malloc(capacity);
    FILE *stream = fopen(path, "re");
    printf("%s\n", path);
    fflush(stdout);
    FUZZ_CHECK(stream != NULL && data != NULL);
    size = fread(data, 1, capacity, stream);
    FUZZ_CHECK(size < capacity);
    fclose(stream);
    uint8_t *exact = malloc(size + 1); /* so that reading past the end is seen */
    FUZZ_CHECK(exact != NULL);
    memcpy(exact + 1, data, size);
    free(data);
    LLVMFuzzerTestOneInput(exact + 1, size);
    free(exact);
    const char *slash = strrchr(path, '/');
    if (strncmp(slash ? slash + 1 : path, "good-", 5) == 0 && !fuzz_was_used()) {
        printf("refused, though it is good: %s\n", dpb_first_error(NULL));
        n_refused++;
    }
}

static int is_file(const struct dirent *entry)
{
    return entry->d_name[0] != '.';
}

/* Returns how many there were. */
static int run_corpus(const char *name)
{
    char directory[256], path[600];
    struct dirent **entries;
    snprintf(directory, sizeof directory, "tests/fuzz/corpus/%s", name);
    int n = scandir(directory, &entries, is_file, alphasort);
    for (int i = 0; i < n; i++) {
        snprintf(path, sizeof path, "%s/%s", directory, entries[i]->d_name);
        run_file(path);
        free(entries[i]);
    }
    if (n >= 0)
        free(entries);
    return n;
}

int main(int argc, char **argv)
{
    const char *slash = strrchr(argv[0], '/');
    const char *name = strchr(slash ? slash : argv[0], '_');
    int n = argc - 1;
    for (int i = 1; i < argc; i++)
        run_file(argv[i]);
    if (argc == 1 && name)
        n = run_corpus(name + 1);
    int n_failed = n > 0 ? n_refused : 1;
    printf("%d passed, %d failed, 0 skipped\n", n > 0 ? n - n_refused : 0, n_failed);
    return n_failed > 0;
}
