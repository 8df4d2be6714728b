/* needs: long */
/*
 * test_models.c - every family of models with every strategy: the exchange is proven on the model's
 * own layout (pattern and run.prove), and two workers' fp32 step is one worker's with two
 * micro-batches. Other depths and versions of a family go through one strategy each, by turns.
 *
 * Images are the smallest that a model's windows take: a strategy sees tensors and buckets, not
 * pixels. Small models also go through `make check`, in test_exchange.c and test_identity.c.
 */
#include <stdbool.h>
#include <string.h>

#include "lib/model.h"
#include "lib/strategies.h"
#include "lib/test.h"
#include "lib/training.h"

/* What all runs share: every term of the update counts. */
#define SHARED                                                                   \
    "device.name=cpu run.precision=fp32 run.steps=1 optimizer.weight_decay=0.1 " \
    "optimizer.momentum=0.9 "

static const double bound = 1e-6, loss_bound = 1e-5;

struct row {
    const char *name, *settings;
    bool in_family; /* its kinds of layers are those of another row */
};

static const struct row rows[] = {
    {"tiny", "", false},
    {"tiny_dense", "", false},
    {"tiny_bn", "", false},
    {"lenet", "", false},
    {"mlp", "", false},
    {"cifar_cnn", "", false},
    {"alexnet_cifar10", "", false},
    {"resnet20", "", false},
    {"resnet32", "", true},
    {"resnet44", "", true},
    {"resnet56", "", true},
    {"resnet110", "", true},
    {"densenet40_k12", "model.image=8", false},
    {"densenet100_k12", "model.image=8", true},
    {"densenet100_k24", "model.image=8", true},
    {"alexnet", "model.image=67", false},
    {"overfeat", "model.image=71", false},
    {"vgg11", "model.image=32", false},
    {"vgg16", "model.image=32", true},
    {"vgg19", "model.image=32", true},
    {"vgg16_cifar", "", false},
    {"googlenet", "model.image=32", false},
    {"inception3", "model.image=75", false},
    {"resnet50", "model.image=32 model.version=v1", true},
    {"resnet50", "model.image=32", false},
    {"resnet50", "model.image=32 model.version=v2", true},
    {"resnet101", "model.image=32", true},
    {"resnet152", "model.image=32", true},
    {"resnext50_32x4d", "model.image=32", false},
    {"mobilenet_v1", "model.image=32", false},
    {"gpt", "model.layers=2 model.width=48 model.heads=3 model.context=24", false},
    {"gpt_tiny", "", false},
    {"vit", "model.image=32 model.layers=2", false},
    {"vit_ti16", "model.image=32", true},
    {"vit_s16", "model.image=32", true},
    {"vit_b16", "model.image=32", true},
    {"vit_b32", "model.image=32", true},
};
enum { N_ROWS = sizeof rows / sizeof rows[0] };

/* With messages a model takes minutes, and these know no more of it than a number of elements. */
static const struct strategy_form *next_form(const struct strategy_form *form)
{
    do
        form = strategy_form_after(form);
    while (form && form->network);
    return form;
}

/* The forms take turns at the rows of a family. */
static bool is_its_turn(const struct row *row, ptrdiff_t form)
{
    ptrdiff_t n = 0;
    for (const struct strategy_form *f = NULL; (f = next_form(f));)
        n++;
    return !row->in_family || form == (row - rows) % n;
}

static void test_model(void **state)
{
    const struct row *row = *state;
    struct training alone;
    ptrdiff_t n = 0;
    if (!have_cpu_device())
        skip();
    train(&alone, SHARED "model.name=%s %s run.accumulate=2", row->name, row->settings);
    for (const struct strategy_form *form = NULL; (form = next_form(form)); n++) {
        struct training together;
        if (!is_its_turn(row, n))
            continue;
        train(&together, SHARED "model.name=%s %s %s run.prove=yes comm.bucket=1000003", row->name,
              row->settings, form_settings(form, "", 2));
        expect_verified(&together);
        expect_same_weights(&together, &alone, NULL, bound);
        expect_same_losses(&together, &alone, loss_bound);
        training_free(&together);
    }
    training_free(&alone);
}

TEST(test_every_model_has_a_row)
{
    for (size_t m = 0; model_at(m); m++) {
        /* The others of its file have more weights and no other layer. */
        bool found = strncmp(model_at(m)->name, "gpt2", strlen("gpt2")) == 0;
        for (size_t i = 0; i < N_ROWS; i++)
            found |= strcmp(rows[i].name, model_at(m)->name) == 0;
        if (!found)
            fail_msg("model '%s' has no row", model_at(m)->name);
    }
}

int main(void)
{
    for (size_t i = 0; i < N_ROWS; i++)
        add_case(test_model, &rows[i], "%s %s", rows[i].name, rows[i].settings);
    return test_main(training_setup, training_teardown);
}
