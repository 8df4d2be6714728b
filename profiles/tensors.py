#!/usr/bin/env python3
"""The tensors of a language model in the order of backward, for `dpbench profile from --tensors`.

    tensors.py gpt2 | llama3_8b

A line is NAME ELEMENTS MACS: the forward multiply-accumulates of one sample, a sequence of the
model's context. Work without a tensor (attention's scores, and a classifier whose tensor is final
later, as the embedding) has the name "-"."""
import sys


def line(name, elements, macs=0):
    print(name, elements, macs)


def dense(name, width_in, width_out, tokens, bias=True):
    line(name + ".weight", width_in * width_out, width_in * width_out * tokens)
    if bias:
        line(name + ".bias", width_out)


def norm(name, width, bias=True):
    line(name + ".weight", width)
    if bias:
        line(name + ".bias", width)


def gpt2(layers=12, width=768, vocabulary=50257, context=1024):
    line("-", 0, width * vocabulary * context)  # the classifier is the embedding
    norm("ln_f", width)
    for i in reversed(range(layers)):
        dense(f"h.{i}.mlp.c_proj", 4 * width, width, context)
        dense(f"h.{i}.mlp.c_fc", width, 4 * width, context)
        norm(f"h.{i}.ln_2", width)
        dense(f"h.{i}.attn.c_proj", width, width, context)
        line("-", 0, 2 * context * context * width)
        dense(f"h.{i}.attn.c_attn", width, 3 * width, context)
        norm(f"h.{i}.ln_1", width)
    line("wpe.weight", context * width)
    line("wte.weight", vocabulary * width)


def llama3_8b(layers=32, width=4096, keys=1024, hidden=14336, vocabulary=128256, context=8192):
    dense("output", width, vocabulary, context, bias=False)
    norm("norm", width, bias=False)
    for i in reversed(range(layers)):
        at = f"layers.{i}."
        dense(at + "feed_forward.w2", hidden, width, context, bias=False)
        dense(at + "feed_forward.w3", width, hidden, context, bias=False)
        dense(at + "feed_forward.w1", width, hidden, context, bias=False)
        norm(at + "ffn_norm", width, bias=False)
        dense(at + "attention.wo", width, width, context, bias=False)
        line("-", 0, 2 * context * context * width)
        dense(at + "attention.wv", width, keys, context, bias=False)
        dense(at + "attention.wk", width, keys, context, bias=False)
        dense(at + "attention.wq", width, width, context, bias=False)
        norm(at + "attention_norm", width, bias=False)
    line("tok_embeddings.weight", vocabulary * width)


{"gpt2": gpt2, "llama3_8b": llama3_8b}[sys.argv[1]]()
