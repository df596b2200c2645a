"""STUB"""
from dataclasses import dataclass
@dataclass(frozen=True)
class AnswerRow:
    work:str; typical:str; range:str; copies:str; faster_from:str; verdict:str; worth_it:str
@dataclass(frozen=True)
class Card:
    device:str; baseline:str; rows:tuple
@dataclass(frozen=True)
class Answer:
    sentence:str; warnings:tuple; cards:tuple; times:tuple=()
