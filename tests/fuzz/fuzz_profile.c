/*
 * fuzz_profile.c - a profile of an accelerator, as a run, `dpbench predict` and `dpbench profile
 * show` read it; and the same input as a result and as a trace that `dpbench profile from` reads.
 * The network of a result is left out: mk/fuzz.mk puts the function below in its place.
 */
#include "emulate/makers.h"
#include "lib/accelerator/accelerator.h"
#include "tests/fuzz/fuzz.h"

dpb_status __wrap_dpb_experiment_create(const struct dpb_config *config,
                                        struct dpb_experiment **experiment);

dpb_status __wrap_dpb_experiment_create(const struct dpb_config *config,
                                        struct dpb_experiment **experiment)
{
    (void)config, (void)experiment;
    return dpb_fail(DPB_USAGE, "no network is made here");
}

/* What is shown has no control characters; what is written is read back as it is. */
static void use(json_t *document)
{
    char *text = NULL;
    size_t length = 0;
    FILE *out = open_memstream(&text, &length);
    FUZZ_CHECK(out != NULL);
    dpb_profile_show(document, out);
    fclose(out);
    FUZZ_CHECK(strchr(text, '\x1b') == NULL);
    free(text);
    out = open_memstream(&text, &length);
    FUZZ_CHECK(out != NULL);
    dpb_profile_write(document, out);
    fclose(out);
    json_t *again = json_loadb(text, length, 0, NULL);
    FUZZ_CHECK(again != NULL && json_object_size(again) == json_object_size(document));
    json_decref(again);
    free(text);
}

static void make(const char *path, dpb_status (*of)(const char *, struct dpb_made *))
{
    struct dpb_made made = {.accelerator = "X",
                            .model = "y",
                            .precision = "fp32",
                            .kind = "measured",
                            .source = "fuzz",
                            .batch = 4};
    json_t *document = NULL;
    if (of(path, &made) == DPB_OK && dpb_made_document(&made, &document) == DPB_OK) {
        fuzz_used();
        use(document);
    }
    json_decref(document);
    dpb_made_release(&made);
    dpb_first_error_clear();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct dpb_accelerator profile;
    char why[DPB_ACCELERATOR_WHY] = "";
    char path[64];
    fuzz_begin();
    json_t *document = json_loadb((const char *)data, size, JSON_REJECT_DUPLICATES, NULL);
    if (document && dpb_accelerator_take(document, "x.json", &profile, why)) {
        fuzz_used();
        use(profile.document);
        dpb_accelerator_release(&profile);
    } else {
        FUZZ_CHECK(!document || why[0] != '\0');
    }
    json_decref(document);
    snprintf(path, sizeof path, "%s", fuzz_file(data, size));
    make(path, dpb_made_of_result);
    make(path, dpb_made_of_torch);
    make(path, dpb_made_of_chakra);
    fuzz_close();
    return 0;
}
