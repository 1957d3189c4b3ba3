"""What each of Weir's rows should reach."""

MOST_DROPPED_SHARE = 0.01
MOST_RETRANSMITTED_SHARE = 0.01
MOST_TIMES_BOUND = 1.1
FAST_LINK_BITS = 1e9  # from here on the hosts are the bound, not the link: raw UDP's time takes its place
LEAST_GOODPUT_FEW_PEERS, FEW_PEERS, LEAST_GOODPUT = 0.90, 10, 0.89


def goals(row, median, raw_udp_seconds):
    """[{"text", "value", "met"}] about the medians of one of Weir's rows."""
    least_goodput = LEAST_GOODPUT_FEW_PEERS if row.peers <= FEW_PEERS else LEAST_GOODPUT
    found = [
        ("dropped", median["dropped_share"], median["dropped_share"] < MOST_DROPPED_SHARE,
         f"under {MOST_DROPPED_SHARE:.0%}"),
        ("retransmitted", median["retransmitted_share"], median["retransmitted_share"] < MOST_RETRANSMITTED_SHARE,
         f"under {MOST_RETRANSMITTED_SHARE:.0%}"),
        ("goodput", median["goodput"], median["goodput"] >= least_goodput, f"at least {least_goodput:g}"),
    ]
    if row.rate_bits < FAST_LINK_BITS:
        found.append(("time", median["over_bound"], median["over_bound"] <= MOST_TIMES_BOUND,
                      f"at most {MOST_TIMES_BOUND:g} x the bound"))
    else:  # missed if raw UDP was not measured
        ratio = median["seconds"] / raw_udp_seconds if raw_udp_seconds else None
        found.append(("time", ratio, ratio is not None and ratio <= MOST_TIMES_BOUND,
                      f"at most {MOST_TIMES_BOUND:g} x raw UDP" + ("" if ratio else ", which was not measured")))
    return [{"text": f"{name} {bound}", "value": value, "met": met} for name, value, met, bound in found]
