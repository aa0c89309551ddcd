"""How tokens are drawn and how drafted tokens are judged (design.md section 2). torch, no I/O."""
