/*
 * test_model_ops.c - the cpu device held to the reference, op by op, on every model, in fp32 and
 * bf16.
 *
 * Images are the smallest that a model's windows take: the reference is plain C, a multiply-add at
 * a time. `make check` goes through one model of most families (tests/unit/test_cpu_models.c).
 */
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "lib/model.h"
#include "lib/opcheck.h"
#include "lib/test.h"
#include "lib/training.h"

static const struct subject subjects[] = {
    {"tiny", NULL, 0, 4, DPB_UINT8, DPB_CHW, NULL},
    {"tiny_dense", NULL, 0, 3, DPB_FP32, DPB_HWC, NULL},
    {"tiny_bn", NULL, 0, 4, DPB_UINT8, DPB_HWC, NULL},
    {"lenet", NULL, 0, 4, DPB_UINT8, DPB_CHW, NULL},
    {"mlp", NULL, 0, 2, DPB_FP32, DPB_CHW, NULL},
    {"cifar_cnn", NULL, 0, 2, DPB_UINT8, DPB_HWC, NULL},
    {"alexnet_cifar10", NULL, 0, 2, DPB_FP32, DPB_CHW, NULL},
    {"resnet20", NULL, 0, 3, DPB_UINT8, DPB_HWC, NULL},
    {"resnet32", NULL, 0, 2, DPB_UINT8, DPB_CHW, NULL},
    {"resnet44", NULL, 16, 3, DPB_UINT8, DPB_HWC, NULL},
    {"resnet56", NULL, 16, 3, DPB_UINT8, DPB_CHW, NULL},
    {"resnet110", NULL, 16, 2, DPB_UINT8, DPB_HWC, NULL},
    {"densenet40_k12", NULL, 16, 2, DPB_UINT8, DPB_CHW, NULL},
    {"densenet100_k12", NULL, 8, 2, DPB_UINT8, DPB_HWC, NULL},
    {"densenet100_k24", NULL, 8, 2, DPB_UINT8, DPB_CHW, NULL},
    {"alexnet", NULL, 67, 2, DPB_UINT8, DPB_CHW, NULL},
    {"overfeat", NULL, 71, 2, DPB_FP32, DPB_CHW, NULL},
    {"vgg11", NULL, 32, 2, DPB_UINT8, DPB_HWC, NULL},
    {"vgg16", NULL, 32, 2, DPB_UINT8, DPB_CHW, NULL},
    {"vgg19", NULL, 32, 2, DPB_FP32, DPB_HWC, NULL},
    {"vgg16_cifar", NULL, 0, 8, DPB_UINT8, DPB_CHW, NULL},
    {"googlenet", NULL, 33, 2, DPB_UINT8, DPB_HWC, NULL},
    {"inception3", NULL, 75, 2, DPB_UINT8, DPB_CHW, NULL},
    {"resnet50", "v1", 32, 2, DPB_UINT8, DPB_CHW, NULL},
    {"resnet50", "v1.5", 32, 2, DPB_UINT8, DPB_HWC, NULL},
    {"resnet50", "v2", 32, 2, DPB_UINT8, DPB_CHW, NULL},
    {"resnet101", NULL, 32, 2, DPB_UINT8, DPB_HWC, NULL},
    {"resnet152", NULL, 32, 2, DPB_UINT8, DPB_CHW, NULL},
    {"resnext50_32x4d", NULL, 32, 2, DPB_UINT8, DPB_HWC, NULL},
    {"mobilenet_v1", NULL, 32, 2, DPB_UINT8, DPB_CHW, NULL},
    {"gpt_tiny", NULL, 0, 4, DPB_INT32, DPB_CHW, NULL},
    {"vit", NULL, 48, 2, DPB_UINT8, DPB_CHW, NULL},
    {"vit_ti16", NULL, 48, 2, DPB_UINT8, DPB_HWC, NULL},
    {"vit_s16", NULL, 48, 2, DPB_UINT8, DPB_CHW, NULL},
    {"vit_b16", NULL, 32, 2, DPB_UINT8, DPB_HWC, NULL},
    {"vit_b32", NULL, 64, 2, DPB_FP32, DPB_CHW, NULL},
};
enum { N_SUBJECTS = sizeof subjects / sizeof subjects[0] };

static void test_ops(void **state)
{
    if (!have_cpu_device() && strcmp(tested_device()->name, "cpu") == 0)
        skip();
    check_subject(*state, OPS);
}

TEST(test_every_model_has_a_row)
{
    for (size_t m = 0; model_at(m); m++) {
        /* The others of its file have more weights and no other op. */
        bool found = strncmp(model_at(m)->name, "gpt", strlen("gpt")) == 0;
        for (size_t i = 0; i < N_SUBJECTS; i++)
            found |= strcmp(subjects[i].model, model_at(m)->name) == 0;
        if (!found)
            fail_msg("model '%s' has no row", model_at(m)->name);
    }
}

int main(void)
{
    for (size_t i = 0; i < N_SUBJECTS; i++)
        add_case(test_ops, &subjects[i], "%s %s", subjects[i].model,
                 subjects[i].version ? subjects[i].version : "");
    setenv("OMP_WAIT_POLICY", "passive", 1);
    return test_main(NULL, NULL);
}
