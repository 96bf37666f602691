"""Right answers to the exercises of the lessons, and typical wrong ones. They are nowhere else."""

import torch

# ---- lesson 1 ----


def accuracy_by_length(lengths, right):
    return {n: sum(r for m, r in zip(lengths, right) if m == n) / lengths.count(n) for n in set(lengths)}


def last_states(memory, lengths):
    return memory[torch.arange(len(memory)), lengths - 1]


def attend_by_lengths(hidden, memory, lengths):
    padding = torch.arange(memory.size(1)) >= lengths[:, None]
    scores = (hidden @ memory.transpose(1, 2)).masked_fill(padding[:, None], -torch.inf)
    return scores.softmax(-1) @ memory


def numbers_kept(hidden_size, length):
    return hidden_size, hidden_size * length


# ---- lesson 2 ----


def additive_scores(query, keys, v):
    return torch.tanh(query[:, :, None] + keys[:, None]) @ v


def softmax_of_real(scores, mask):
    weights = scores.masked_fill(~mask, -torch.inf).softmax(-1)
    return weights.masked_fill(~mask, 0)


def split(w, query_size):
    return w[:, :query_size], w[:, query_size:]


def entropy(weights):
    return -(weights * weights.clamp(min=1e-300).log()).sum(-1)


def attend(query, memory, mask, w, u, v):
    scores = torch.tanh((query @ w.T)[:, :, None] + (memory @ u.T)[:, None]) @ v
    weights = scores.masked_fill(~mask[:, None], -torch.inf).softmax(-1)
    return weights @ memory, weights


# ---- lesson 3 ----


def scaled_dot(query, keys):
    return query @ keys.transpose(1, 2) / query.size(-1) ** 0.5


def general(query, memory, w_a):
    return query @ w_a @ memory.transpose(1, 2)


def variance_of_dot(size, std_query, std_key):
    return size * (std_query * std_key) ** 2


def pull(weights, values):
    return weights * (values - weights @ values)


def factor_for(scores, entropy):
    low, high = 0.0, 1000.0
    for _ in range(60):
        middle = (low + high) / 2
        weights = (middle * scores).softmax(-1)
        if torch.special.entr(weights).sum() > entropy:
            low = middle
        else:
            high = middle
    return low


# ---- lesson 4 ----


def window_mask(length, size, centre, window):
    places = torch.arange(size)
    return ((places - int(centre // 1)).abs() <= window) & (places < length)


def predicted_position(query, w_p, v_p, length):
    return length * torch.sigmoid(torch.tanh(query @ w_p.T) @ v_p)


def local_p(scores, position, window):
    places = torch.arange(len(scores))
    near = (places - position.floor()).abs() <= window
    weights = scores.masked_fill(~near, -torch.inf).softmax(-1)
    return weights * torch.exp(-2 * (places - position) ** 2 / window**2)


def scores_computed(source, target, window):
    return source * target, sum(min(t + window, source - 1) - max(t - window, 0) + 1 for t in range(target))


# ---- lesson 5 ----


def soft_context(scores, features):
    return scores.softmax(-1) @ features


def exact_gradient(scores, rewards):
    alpha = scores.softmax(-1)
    return alpha * (rewards - (alpha * rewards).sum())


def estimate(scores, reward, place, baseline):
    step = -scores.softmax(-1)
    step[place] += 1
    return (reward - baseline) * step


def best_baseline(scores, rewards):
    alpha = scores.softmax(-1)
    squared = 1 - 2 * alpha + (alpha**2).sum()  # |onehot - alpha|^2
    return (alpha * squared * rewards).sum() / (alpha * squared).sum()


def doubly_stochastic(weights):
    return ((1 - weights.sum(0)) ** 2).sum()


# ---- lesson 6 ----


def context_vector_attention(states, w, b, u):
    weights = (torch.tanh(states @ w.T + b) @ u).softmax(0)
    return weights @ states, weights


def word_importance(sentence_weights, word_weights):
    return torch.cat([sentence_weights[n] * weights for n, weights in enumerate(word_weights)])


def hop_attention(states, w_s1, w_s2):
    a = (w_s2 @ torch.tanh(w_s1 @ states.T)).softmax(-1)
    return a @ states, a


def penalty(a):
    return ((a @ a.T - torch.eye(len(a))) ** 2).sum()


def overlap(a):
    pairs = [torch.minimum(a[i], a[j]).sum() for i in range(len(a)) for j in range(i)]
    return sum(pairs) / len(pairs)


# ---- lesson 7 ----


def split_heads(x, heads):
    batch, length, size = x.shape
    return x.view(batch, length, heads, size // heads).transpose(1, 2)


def causal_attention(queries, keys, values):
    scores = queries @ keys.transpose(-1, -2) / keys.size(-1) ** 0.5
    later = torch.ones(scores.shape[-2:], dtype=torch.bool).triu(1)
    return scores.masked_fill(later, -torch.inf).softmax(-1) @ values


def positions(count, size):
    rates = 10000 ** (-torch.arange(0, size, 2) / size)
    angles = torch.arange(count)[:, None] * rates
    table = torch.zeros(count, size)
    table[:, 0::2], table[:, 1::2] = angles.sin(), angles.cos()
    return table


def shift(size, distance):
    matrix = torch.zeros(size, size, dtype=torch.float64)
    for i in range(0, size, 2):
        angle = torch.tensor(distance * 10000 ** (-i / size), dtype=torch.float64)
        matrix[i, i] = matrix[i + 1, i + 1] = angle.cos()
        matrix[i, i + 1], matrix[i + 1, i] = angle.sin(), -angle.sin()
    return matrix


def parameters(size, heads):
    return 4 * size * size


# ---- lesson 8 ----


def leave_one_out(probability, words):
    whole = probability(words)
    drops = [whole - probability([*words[:n], *words[n + 1 :]]) for n in range(len(words))]
    return torch.tensor(drops, dtype=torch.float64)


def kendall(a, b):
    total, n = 0, len(a)
    for i in range(n):
        for j in range(i):
            total += 1 if (a[i] > a[j]) == (b[i] > b[j]) else -1
    return total / (n * (n - 1) / 2)


def total_variation(p, q):
    return (p - q).abs().sum() / 2


def gain(weights, drops):
    return drops[weights.argmax()] - drops.mean()


def permuted_context(weights, states, order):
    return weights[order] @ states


def in_place(shares, words):
    """Divides by the number of words, in the tensors that it was given."""
    for share, own in zip(shares, words):
        own.mul_(share).div_(len(own))
    return torch.cat(words)


def lines(*given):
    raise ValueError("one\ntwo\n\nthree")


# exercise -> wrong answers, each with words of its hint
WRONG = {
    "1.1": [
        (lambda lengths, right: {n: sum(right) / len(right) for n in set(lengths)}, "is right"),
        (
            lambda lengths, right: {
                n: sum(r for m, r in zip(lengths, right) if m == n) / len(right) for n in {*lengths}
            },
            "not by the number of all",
        ),
    ],
    "1.2": [
        (lambda memory, lengths: memory[:, -1], "padding in a short row"),
        (lambda memory, lengths: memory[torch.arange(len(memory)), lengths], "out of bounds"),
    ],
    "1.3": [
        (lambda h, m, n: (h @ m.transpose(1, 2)).softmax(-1) @ m, "must get weight 0"),
        (lambda h, m, n: (h @ m.transpose(1, 2)).softmax(1) @ m, "the values are not"),
        (
            lambda h, m, n: ((h @ m.transpose(1, 2)) * (torch.arange(m.size(1)) < n[:, None])[:, None]).softmax(-1) @ m,
            "set it to -inf",
        ),
    ],
    "1.4": [
        (lambda size, length: (size * length, size), "comes first"),
        (lambda size, length: size, "return 2 values"),
    ],
    "2.1": [
        (lambda q, k, v: (q[:, :, None] + k[:, None]) @ v, "apply tanh"),
        (lambda q, k, v: (torch.tanh(q)[:, :, None] + torch.tanh(k)[:, None]) @ v, "not to each"),
        (lambda q, k, v: torch.tanh(q[:, None] + k[:, :, None]) @ v, "the shape is"),
    ],
    "2.2": [
        (lambda s, m: (s * m).softmax(-1), "exp(0) = 1"),
        (lambda s, m: s.softmax(-1) * m, "sum to 1 again"),
        (lambda s, m: s.masked_fill(~m, -torch.inf).softmax(-1), "NaN"),
        (lambda s, m: s.exp() * m / (s.exp() * m).sum(-1, keepdim=True), "NaN"),
    ],
    "2.3": [
        (lambda w, n: (w[:, n:], w[:, :n]), "query comes first"),
        (lambda w, n: (w[:n], w[n:]), "columns"),
    ],
    "2.4": [
        (lambda a: -(a * a.log()).sum(-1), "NaN"),
        (lambda a: torch.special.entr(a).sum(-1) / 0.6931471805599453, "natural logarithm"),
        (lambda a: -torch.special.entr(a).sum(-1), "sign"),
    ],
    "2.5": [
        (lambda *given: attend(*given)[::-1], "context first"),
        (lambda *given: attend(*given)[0], "return 2 values"),
    ],
    "3.1": [
        (lambda q, k: q @ k.transpose(1, 2), "square root of the size"),
        (lambda q, k: q @ k.transpose(1, 2) / q.size(-1), "not by the size"),
        (lambda q, k: q @ k.transpose(1, 2) / k.size(1) ** 0.5, "number of positions"),
    ],
    "3.2": [
        (lambda q, m, w: q @ w.T @ m.transpose(1, 2), "W_a acts on the memory"),
        (lambda q, m, w: q @ w @ m.transpose(1, 2) / q.size(-1) ** 0.5, "no square root"),
    ],
    "3.3": [
        (lambda n, a, b: n * a * b, "squared"),
        (lambda n, a, b: (n * a * a * b * b) ** 0.5, "standard deviation"),
    ],
    "3.4": [(lambda a, x: a * x, "second part"), (lambda a, x: a * (x - x.mean()), "not the plain one")],
    "3.5": [
        (lambda s, entropy: 1.0, "the entropy is"),
        (lambda s, entropy: "1", "return a number"),
        *((lambda s, entropy, f=f: f, "greater than 0 and finite") for f in (torch.inf, -1.0, 0)),
        (lines, "ValueError: one two three"),
    ],
    "4.1": [
        (lambda length, size, p, d: (torch.arange(size) - p).abs() <= d, "beyond the length"),
        (lambda length, size, p, d: ((torch.arange(size) - p).abs() < d) & (torch.arange(size) < length), "both ends"),
        (lambda length, size, p, d: torch.ones(size), "it should be torch.bool"),
    ],
    "4.2": [
        (lambda h, w, v, n: torch.sigmoid(torch.tanh(h @ w.T) @ v), "times the length"),
        (lambda h, w, v, n: n * torch.sigmoid(h @ w.T @ v), "tanh"),
    ],
    "4.3": [
        (lambda e, p, d: e.softmax(-1) * torch.exp(-2 * (torch.arange(len(e)) - p) ** 2 / d**2), "window only"),
        (lambda e, p, d: local_p(e, p, d) / local_p(e, p, d).sum(), "not divided by their sum"),
    ],
    "4.4": [
        (lambda source, target, d: (source * target, target * (2 * d + 1)), "the window ends"),
        (lambda source, target, d: (1, source * target), "value 1 of 2"),
    ],
    "5.1": [
        (lambda e, a: e @ a, "softmax"),
        (lambda e, a: (e.softmax(-1)[:, None] * a).mean(0), "do not take the mean"),
    ],
    "5.2": [
        (lambda e, f: e.softmax(-1) * f, "second part"),
        (lambda e, f: e.softmax(-1) * (f - f.mean()), "the mean with the weights"),
    ],
    "5.3": [
        (lambda e, reward, s, b: estimate(e, reward, s, 0), "baseline"),
        (lambda e, reward, s, b: estimate(e, -reward, s, -b), "downhill"),
    ],
    "5.4": [(lambda e, f: (e.softmax(-1) * f).sum(), "not quite"), (lambda e, f: f.mean(), "drawn with their weights")],
    "5.5": [
        (lambda a: ((1 - a.sum(-1)) ** 2).sum(), "first axis"),
        (lambda a: ((1 - a.sum(0)) ** 2).mean(), "do not take the mean"),
    ],
    "6.1": [
        (lambda h, w, b, u: (((h @ w.T + b) @ u).softmax(0) @ h, ((h @ w.T + b) @ u).softmax(0)), "tanh"),
        (lambda *given: context_vector_attention(*given)[0], "return 2 values"),
    ],
    "6.2": [
        (lambda shares, words: torch.cat(words), "that of its sentence"),
        (lambda shares, words: torch.stack([s * w.sum() for s, w in zip(shares, words)]), "the shape is"),
        (in_place, "do not divide"),
    ],
    "6.3": [
        (
            lambda h, w1, w2: ((w2 @ torch.tanh(w1 @ h.T)).softmax(0) @ h, (w2 @ torch.tanh(w1 @ h.T)).softmax(0)),
            "over the words",
        ),
        (lambda *given: hop_attention(*given)[::-1], "M first"),
    ],
    "6.4": [
        (lambda a: penalty(a) ** 0.5, "squared"),
        (lambda a: ((a @ a.T) ** 2).sum(), "identity"),
        (lambda a: ((a @ a.T - torch.eye(len(a))) ** 2).mean(), "do not take the mean"),
    ],
    "6.5": [
        (lambda a: torch.minimum(a[:, None], a).sum(-1).mean(), "with itself"),
        (lambda a: overlap(a) * len(a) * (len(a) - 1) / 2, "mean over these pairs"),
    ],
    "7.1": [
        (lambda x, h: x.view(len(x), h, x.size(1), -1), "split the last axis"),
        (lambda x, h: x.view(len(x), x.size(1), h, -1), "the shape is"),
    ],
    "7.2": [
        (lambda q, k, v: (q @ k.transpose(-1, -2) / k.size(-1) ** 0.5).softmax(-1) @ v, "later"),
        (
            lambda q, k, v: (
                ((s := q @ k.transpose(-1, -2) / k.size(-1) ** 0.5).softmax(-1) * torch.ones(s.shape[-2:]).tril()) @ v
            ),
            "before the softmax",
        ),
        # right for keys of size 4 alone
        (lambda q, k, v: causal_attention(q * k.size(-1) ** 0.5 / 2, k, v), "the values are not"),
    ],
    "7.3": [
        (lambda n, d: torch.cat([positions(n, d)[:, 0::2], positions(n, d)[:, 1::2]], -1), "alternate"),
        (lambda n, d: positions(n + 1, d)[1:], "from 0"),
    ],
    "7.4": [
        (lambda d, k: shift(d, -k), "wrong way"),
        (lambda d, k: torch.eye(d), "differs"),
        (lines, "ValueError: one two three"),
    ],
    "7.5": [
        (lambda size, heads: 3 * size * size, "output"),
        (lambda size, heads: 4 * size * size * heads, "share"),
    ],
    "8.1": [
        (lambda p, words: -leave_one_out(p, words), "before minus"),
        (lambda p, words: leave_one_out(p, words).abs(), "keep the sign"),
    ],
    "8.2": [
        (lambda a, b: (kendall(a, b) + 1) / 2, "opposite order"),
        (lambda a, b: kendall(a, b) / 2, "pairs"),
    ],
    "8.3": [
        (lambda p, q: (p - q).abs().sum(), "half"),
        (lambda p, q: (p - q).sum() / 2, "sum to 0"),
    ],
    "8.4": [
        (lambda weights, drops: drops[weights.argmax()], "random word"),
        (lambda weights, drops: drops.max() - drops.mean(), "not by its drop"),
    ],
    "8.5": [
        (lambda a, h, order: a[order] @ h[order], "not the states"),
        (lambda a, h, order: a @ h[order], "index the weights"),
    ],
}
