"""English words that say little by themselves, which augmentation keeps: pronouns, auxiliaries, prepositions and such.

For text in another language none of them occurs, and every word may change.
"""

PRONOUNS = """
    i me my mine myself you your yours yourself yourselves he him his himself she her hers herself it its itself
    we us our ours ourselves they them their theirs themselves this that these those who whom whose which what
"""
AUXILIARIES = """
    am is are was were be been being have has had having do does did doing done
    can could will would shall should may might must ought
    ain aren couldn didn doesn don hadn hasn haven isn mightn mustn needn shan shouldn wasn weren won wouldn
    s t d ll m re ve o y
"""
PREPOSITIONS = """
    about above after against at before below between by down during for from in into of off on out over
    through to under until up upon with
"""
OTHERS = """
    a an the and but or nor if because as while than so again further then once here there when where why how
    all any both each few more most other some such no not only own same too very just now
"""
STOP_WORDS = frozenset(" ".join((PRONOUNS, AUXILIARIES, PREPOSITIONS, OTHERS)).split())
