// What documents.h makes its texts of.
#pragma once

#include <algorithm>
#include <string>
#include <vector>

namespace tiny_llama {

/// A kind of fact about a person: {n} stands for the name, {v} for the value.
struct Attribute {
  std::vector<std::string> values, statements, questions;
};

struct Words {
  std::vector<std::string> first_names, last_names, adjectives, nouns, verbs, times;
  std::vector<Attribute> attributes;
  std::vector<std::string> fillers;  // {w} time, {a} {b} adjectives, {o} {p} nouns, {r} verb
};

inline std::vector<std::string> split(const std::string& text) {
  std::vector<std::string> words;
  for (std::size_t at = 0, end; at < text.size(); at = end + 1) {
    end = std::min(text.find(' ', at), text.size());
    words.push_back(text.substr(at, end - at));
  }
  return words;
}

/// The lists and templates that the model was trained with: another word would be news to it.
inline const Words& words() {
  static const Words all = [] {
    Words w;
    w.first_names = split(
        "Anna Boris Clara David Elena Felix Greta Henry Irene Jacob Karen Louis Maria Nathan Olive Peter "
        "Quinn Rosa Simon Tessa Ursula Victor Wanda Xavier Yvonne Zachary Agnes Bruno Celia Dmitri Edith "
        "Frank Gloria Hugo Ingrid Julian Katya Leonard Mabel Norman Ophelia Paul Ramona Samuel Theresa Ulrich "
        "Violet Walter Ximena Yusuf Zelda Arthur Beatrice Conrad Daphne Edgar Flora Gilbert Helga Isaac "
        "Joanna Kenneth Lydia Martin Nora Oscar Pauline Robert Sylvia Thomas");
    w.last_names = split(
        "Abbott Barker Carver Dalton Ellis Foster Garner Harlow Ingram Jarvis Keller Lowell Mercer Norton "
        "Osborne Porter Quigley Ramsey Sawyer Thorne Underwood Vance Walsh Yates Zimmer Archer Benson Cooper "
        "Draper Emerson Fisher Gardner Hunter Irving Joiner Knight Lambert Mason Nash Oakley Palmer Reeve "
        "Shepherd Tanner Usher Vickers Weaver York Ashby Bishop Chandler Dyer Farmer Glover Hayward Kemp "
        "Latimer Miller Naylor Parsons Rowe Slater Turner Wright");
    w.adjectives = split(
        "old quiet cold bright narrow empty long dark heavy small pleasant strange gentle broken distant warm "
        "silent crowded");
    w.nouns = split(
        "road house river bridge garden market tower forest hill church field street harbour mill gate wall "
        "window door");
    w.verbs = split("stood lay waited rested slept remained shone stayed");
    w.times = {"In the morning", "At noon",         "That evening", "In the winter", "Last summer",
               "After the war",  "Before the rain", "Every Sunday", "Now and then",  "For many years"};
    w.attributes = {
        // city
        {split("Rome Paris London Berlin Madrid Vienna Prague Lisbon Dublin Athens Warsaw Oslo Moscow Cairo Delhi "
               "Tokyo Boston Chicago Denver Dallas Geneva Naples Milan Venice Florence Hamburg Munich Lyon Bristol "
               "Glasgow York Leeds Kiev Riga Sofia Bergen Malta Havana Lima Quito Manila Sydney Perth Toronto"),
         {"{n} lives in {v} .", "The home of {n} is in {v} .", "{n} has a house in {v} ."},
         {"In which city does {n} live ?"}},
        // colour
        {split("red blue green yellow black white grey brown purple orange pink silver golden scarlet"),
         {"{n} wears a {v} coat .", "The coat of {n} is {v} .", "{n} bought a {v} coat ."},
         {"What is the colour of the coat of {n} ?"}},
        // food
        {split("bread cheese fish soup rice apples grapes honey butter onions beans cabbage mutton beef pork eggs "
               "cakes figs nuts plums pears cherries potatoes oysters lemons melons olives carrots peas mushrooms"),
         {"{n} likes to eat {v} .", "The dinner of {n} is {v} .", "{n} is fond of {v} ."},
         {"What does {n} like to eat ?"}},
        // job
        {split("baker teacher doctor farmer sailor painter lawyer tailor miller carpenter soldier writer singer "
               "dancer cook nurse judge banker clerk driver fisherman gardener hunter jeweller mason merchant miner "
               "porter potter printer shepherd smith surgeon weaver barber butcher"),
         {"{n} works as a {v} .", "By trade {n} is a {v} .", "{n} earns a living as a {v} ."},
         {"What is the trade of {n} ?"}},
        // music
        {split("piano violin flute drum harp trumpet organ guitar horn fiddle lute cello"),
         {"{n} plays the {v} .", "In the evening {n} plays the {v} .", "{n} learned the {v} ."},
         {"Which instrument does {n} play ?"}},
        // pet
        {split("dog cat horse goat parrot rabbit turtle snake pig duck goose hen fox owl mouse donkey camel monkey "
               "hawk pony lizard toad raven swan"),
         {"{n} keeps a {v} .", "At home {n} has a {v} .", "The animal of {n} is a {v} ."},
         {"Which animal does {n} keep ?"}},
        // word
        {split("lantern anchor feather candle hammer mirror basket button ladder bottle kettle saddle ribbon pebble "
               "whistle barrel needle thimble compass blanket bucket chimney cushion dagger shovel spade trumpet "
               "wagon walnut willow acorn thunder marble velvet copper amber ivory cotton pepper ginger saffron "
               "cinnamon"),
         {"The password of {n} is {v} .", "{n} chose the password {v} .", "Remember that {n} has the password {v} ."},
         {"What is the password of {n} ?"}},
    };
    w.fillers = {"{w} the {a} {o} {r} near the {b} {p} .",   "The {a} {o} {r} by the {p} .",
                 "{w} nobody came to the {a} {o} .",         "Some say that the {o} was {a} and the {p} was {b} .",
                 "{w} there was a {a} {o} behind the {p} .", "It was a {a} day , and the {o} {r} as before ."};
    return w;
  }();
  return all;
}

}  // namespace tiny_llama
